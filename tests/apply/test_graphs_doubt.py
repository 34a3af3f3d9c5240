"""compile=graphs on scripts that change something behind a recording's back: followed or left alone, never replayed wrongly."""

import cProfile
import types

import pytest

torch = pytest.importorskip("torch")

from stage import Net, Training
from test_graphs import recorded_here, same_as_plain
from torch import nn

F = nn.functional
plain = Net.forward
here = recorded_here  # the fixture

TIMES = {"t": 1.0}


def falling(step):
    return 1 - step / 100


def own(forward, **attributes):
    """A maker of trainings with a net of this forward pass and these attributes, made anew each time."""
    kind = type("Own", (Net,), {"forward": forward})

    def make():
        net = kind()
        for name, value in attributes.items():
            setattr(net, name, value())
        return net

    return lambda: Training(model=make)


def times_attribute(self, x):
    return plain(self, x) * self._mask


def times_object(self, x):
    return plain(self, x) * self._config.t


def times_number(self, x):
    return plain(self, x) * self.t


def times_tuple(self, x):
    return plain(self, x) * self.size[0]


def appends(self, x):
    out = plain(self, x)
    self._kept.append(1)
    return out * (1 - len(self._kept) / 100)


def of_dict(self, x):
    return plain(self, x) * self.__dict__["t"]


def set_in_dict(training, step):
    training.model.__dict__["t"] = falling(step)


def set_past_the_module(training, step):
    object.__setattr__(training.model, "t", falling(step))


def set_object(training, step):
    training.model._config.t = falling(step)


def set_mask(training, step):
    training.model._mask = None  # its address may be the next one's
    training.model._mask = torch.full((5,), falling(step))


def set_memory(training, step):
    training.model._mask.data = torch.full((5,), falling(step))


def set_tuple(training, step):
    training.model.size = None
    training.model.size = (falling(step),)


def nothing(training, step):
    pass


def mask():
    return torch.ones(5)


def one():
    return 1.0


CASES = {
    "a mask": (own(times_attribute, _mask=mask), set_mask),
    "its memory": (own(times_attribute, _mask=mask), set_memory),
    "an object": (own(times_object, _config=lambda: types.SimpleNamespace(t=1.0)), set_object),
    "a number in the dict": (own(times_number, t=one), set_in_dict),
    "a number past the module": (own(times_number, t=one), set_past_the_module),
    "the dict itself": (own(of_dict, t=one), set_in_dict),
    "a tuple": (own(times_tuple, size=lambda: (1.0,)), set_tuple),
    "a list": (own(appends, _kept=list), nothing),
}


@pytest.mark.parametrize("case", CASES, ids=lambda name: name.replace(" ", "-"))
def test_what_the_pass_reads(case):
    make, change = CASES[case]
    same_as_plain(make, change)


# -- classes and functions -------------------------------------------------------------------------------------------


class Settings:
    t = 1.0


def with_default(x, kept=[1.0]):  # noqa: B006
    return x * kept[0]


def with_attribute(x):
    return x * with_attribute.t


act = torch.tanh


def of_settings(self, x):
    return plain(self, x) * self.settings.t


def of_its_class(self, x):
    return plain(self, x) * self.scale


def by_default(self, x):
    return with_default(plain(self, x))


def by_attribute(self, x):
    return with_attribute(plain(self, x))


def by_name(self, x):
    return act(plain(self, x))


class Behind:
    scale = 1.0


def outside(step):
    """Everything that a script could set without touching its model."""
    global act
    Settings.t = Behind.scale = with_attribute.t = falling(step)
    with_default.__defaults__[0][0] = falling(step)
    act = torch.tanh if step < 7 else torch.sigmoid


OUTSIDE = {
    "settings": own(of_settings, settings=lambda: Settings),
    "default": own(by_default),
    "attribute": own(by_attribute),
    "name": own(by_name),
}


class Mixed(Net, Behind):
    forward = of_its_class


OUTSIDE["mixin"] = lambda: Training(model=Mixed)


@pytest.mark.parametrize("case", OUTSIDE)
def test_what_lies_outside_the_model(case):
    def make():
        outside(0)
        return OUTSIDE[case]()

    proof = same_as_plain(make, lambda training, step: outside(step))
    assert proof.status == ("applied" if case == "name" else "refused"), proof


# -- parts, weights, inputs ----------------------------------------------------------------------------------------------


def trained_anew(training):
    training.optimizer.param_groups[0]["params"] = list(training.model.parameters())


def other_parameter(training, step):
    if step == 7:
        training.model.head.weight = nn.Parameter(training.model.head.weight.data)  # on the same memory
        trained_anew(training)


def other_part(training, step):
    if step == 7:
        torch.manual_seed(3)
        training.model.head = None
        training.model.head = nn.Linear(72, 5)
        trained_anew(training)


def added_part(training, step):
    if step == 7:
        torch.manual_seed(3)
        training.model.add_module("head", nn.Linear(72, 5))  # past `__setattr__`
        trained_anew(training)


def turned(training, step):
    if step == 7:
        training.model.head.weight.data = training.model.head.weight.data.t().contiguous().t()


@pytest.mark.parametrize("change", [other_parameter, other_part, added_part, turned], ids=lambda f: f.__name__)
def test_another_part_is_recorded_anew(change):
    proof = same_as_plain(Training, change)
    assert proof.status == "applied", proof
    assert proof.details["cuda_graphs"] == 4


def keeps_a_mean(self, x):
    out = plain(self, x)
    self.mean.mul_(0.9).add_(out.detach().mean(0), alpha=0.1)
    return out - self.mean


def decays(self, x):
    with torch.no_grad():
        self.head.weight.mul_(0.99)
    return plain(self, x)


def changes_its_input(self, x):
    return plain(self, x.sub_(0.5).mul_(2.0))


@pytest.mark.parametrize(
    "make",
    [own(keeps_a_mean, mean=lambda: torch.zeros(5)), own(decays), own(changes_its_input)],
    ids=["mean", "weight", "input"],
)
def test_what_is_changed_in_place_is_not_touched_by_looking_at_it(make):
    assert same_as_plain(make).code == "changes-in-place"


class Beside(nn.Module):
    """Trains something that is not its own."""

    def __init__(self):
        super().__init__()
        self.net = Net()
        self.register_buffer("scale", torch.ones(5, requires_grad=True))

    def forward(self, x):
        return self.net(x) * self.scale


def test_a_trainable_tensor_that_is_no_parameter():
    def make():
        training = Training(model=Beside)
        training.optimizer.add_param_group({"params": [training.model.scale]})
        return training

    assert same_as_plain(make).code == "trains-more-than-itself"


def test_hooks_of_weights_are_called_once_a_step():
    def make():
        training = Training()
        training.seen = []
        training.model.head.weight.register_hook(
            lambda gradient: training.seen.append(1) or gradient * falling(len(training.seen))
        )
        return training

    assert same_as_plain(make).status == "applied"


class OneTensorTwice(Training):
    def run(self, at_step=lambda step: None):
        for x, y, _ in self.loader:
            loss = F.cross_entropy(self.model(x, x), y)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.append(float(loss.detach()))
        return self


def asks_who(self, a, b):
    return plain(self, a) * (1.0 if a is b else 0.5)


def test_one_tensor_given_twice_runs_plain():
    assert same_as_plain(lambda: OneTensorTwice(model=type("Who", (Net,), {"forward": asks_who}))).status == "refused"


class Chooses(nn.Module):
    """Of indices: another one may lie outside, and on a card that is the end."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(6, 5)

    def forward(self, chosen):
        return self.table(chosen)


class Choosing(Training):
    def run(self, at_step=lambda step: None):
        for _, y, _ in self.loader:
            loss = F.cross_entropy(self.model(y), y)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.append(float(loss.detach()))
        return self


def test_indices():
    assert same_as_plain(lambda: Choosing(model=Chooses)).status == "applied"


class Island(Net):
    """Full precision in the middle of a low one; and a weight that is used twice."""

    def __init__(self):
        super().__init__()
        self.twice = nn.Linear(72, 72)

    def forward(self, x):
        x = self.twice(self.twice(self.features(x).flatten(1)))
        with torch.autocast("cpu", enabled=False):
            return self.head(self.drop(x.float()))


class UnderAutocast(Training):
    def run(self, at_step=lambda step: None):
        for x, y, _ in self.loader:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.append(float(loss.detach()))
        return self


def test_the_scripts_own_autocast():
    assert same_as_plain(lambda: UnderAutocast(model=Island)).status == "applied"


def test_a_script_that_profiles_itself_keeps_its_profiler():
    class Profiled(Training):
        def run(self, at_step=lambda step: None):
            profile = cProfile.Profile()
            profile.enable()
            try:
                return super().run(at_step)
            finally:
                profile.disable()

    assert same_as_plain(lambda: Profiled(epochs=1)).status == "refused"


def test_no_gradient_is_not_a_gradient_of_zero():
    class Nowhere(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sum()

        @staticmethod
        def backward(ctx, gradient):
            return None

    class Half(Training):
        def run(self, at_step=lambda step: None):
            for number, (x, y, _) in enumerate(self.loader):
                out = self.model(x)
                loss = F.cross_entropy(out, y) if number % 2 else Nowhere.apply(out)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.losses.append(float(loss.detach()))
            return self

    def make():
        return Half(optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1))

    assert same_as_plain(make).status == "applied"
