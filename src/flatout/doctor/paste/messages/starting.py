"""Driver, nvidia-smi, containers and the start of CUDA."""

from __future__ import annotations

from flatout.doctor.paste.messages.sentence import message, report

_GPU = r"(?:gpus?|graphics cards?|nvidia cards?|video cards?|cuda devices?|cuda|显卡)"
_UPDATED = r"(?:updat|upgrad|reinstall|install)(?:e|es|ed|ing)?"

SENTENCES = (
    message(
        "cuda-not-available",
        r"is_available(?:\(\))?\)?~(?:false|不可用)",
        r"false~(?:from|for|by|when)~is_available",
        r"cuda(?: is|'s)? (?:still |currently |always )?(?:not|un) ?available(?! for execution)",
        r"(?:is )?cuda (?:is )?available\)?[^\n\w]{1,4}(?:false|no\b)",
        r"torch is not able to use gpu",
        r"unexpected error from cudagetdevicecount",
        r"\bcuda (?:driver )?init\w* (?:failed|error)",
        r"\bcuda (?:is |has |was |support |init\w* |suddenly |then )?(?:been )?(?:lost|gone|broken|dead"
        r"|fails?\b(?! with out)|failing|stops? (?:work|init)\w*|stopped (?:work|init)\w*|not work\w*|(?:doesn't|does not"
        r"|won't|no longer) (?:work|init|start)\w*|unusable|breaks?\b)",
        r"no (?:nvidia |cuda |compatible |usable )?gpus? (?:was |were |is |are )?(?:found|detected|available|visible)",
        rf"{_GPU} (?:is |was |were |are )?(?:still )?(?:not|never|isn't|wasn't) (?:being )?(?:found|detected|recogni[sz]ed"
        rf"|seen|visible|used|utili[sz]ed)",
        rf"(?:torch|pytorch|comfyui|webui|model|training|it|yolo\w*) (?:still )?(?:cannot|can't|can not|could not|couldn't"
        rf"|does not|doesn't|won't|will not|not) (?:see|use|using|find|detect|recogni[sz]e|access|run on)~{_GPU}",
        r"(?:using|uses?|runs?|running|train\w*|stuck|works?) (?:\w+ ){0,3}?(?:on |with )?(?:my |the )?cpu (?:only|instead"
        r"|rather|not|and not)",
        r"(?:falls?|fell|falling|defaults?|fallback) (?:back )?to (?:the )?cpu",
        r"cuda ?不可用|无法(?:使用|调用|识别|检测)~(?:gpu|显卡|cuda)",
        r"(?:用不了|检测不到|找不到|识别不到|没有检测到|未检测到|无法用) ?(?:nvidia ?)?(?:gpu|显卡|cuda)",
        r"(?:只|仅)(?:能)?(?:用|使用|在) ?cpu|回退到 ?cpu|cuda~返回 ?false",
    ),
    message("no-cuda-gpus", r"no cuda gpus are available", r"no cuda-capable device"),
    message(
        "found-no-driver",
        r"found no nvidia driver",
        r"no nvidia driver (?:was |is )?(?:found|installed|detected)",
        r"没有找到~nvidia ?驱动|未安装~(?:nvidia|显卡) ?驱动",
    ),
    message(
        "driver-too-old",
        r"driver~(?:is |are )?(?:too|very) (?:old|outdated)",
        r"(?:too )?old(?:er)? (?:nvidia |gpu )?driver (?:than|for|version)",
        r"driver version is insufficient",
        r"driver~(?:outdated|out of date)",
        r"(?:nvidia |gpu |显卡)?驱动(?:程序)?(?:的)?(?:版本)?(?:太|过|较)(?:旧|老|低)",
        words=("driver", "驱动"),
    ),
    message(
        "smi-failed",
        r"couldn't communicate with the nvidia driver",
        r"nvidia-smi (?:has )?(?:failed|fails|cannot|can't|couldn't|unable)~(?:communicate|talk|connect)",
        r"nvidia-smi has failed",
        r"gpu access blocked by the operating system",
        r"nvidia kernel module is not loaded",
        r"failed to initialize nvml: driver not loaded",
        r"无法与 ?nvidia ?驱动~通信",
    ),
    message(
        "smi-not-found",
        r"nvidia-smi['\":]{0,3} ?(?:command )?not found",
        r"'?nvidia-smi'? is not recogni[sz]ed",
        r"command 'nvidia-smi' not found",
        r"nvidia-smi\":? executable file not found",
        r"nvidia-smi'?~不是内部或外部命令|nvidia-smi~未找到命令",
    ),
    message("smi-no-devices", r"no devices were found"),
    message(
        "nvml-version-mismatch",
        r"driver/library version mismatch",
        r"nvml~version mismatch",
        r"nvrm: api mismatch",
        r"nvml_error_lib_rm_version_mismatch",
        r"驱动~(?:库|内核)~版本不(?:匹配|一致)",
    ),
    message("nvml-unknown-error", r"failed to initialize nvml: unknown error", r"nvml~unknown error"),
    message(
        "gpu-lost",
        r"(?:fallen|falls?|fell|falling|drops?|dropped) off (?:of )?(?:the )?(?:pcie? )?bus",
        r"gpu is lost",
        r"nvml_error_gpu_is_lost",
        r"unable to determine the device handle for gpu",
        r"(?:显卡|gpu) ?(?:掉卡|掉线|丢失)|掉卡",
    ),
    report(
        "machine-powers-off",
        r"(?:shut(?:s|ting)? (?:down|off)|shutdowns?|reboots|rebooting|restarts|restarting|power(?:s|ed|ing)? (?:off|down)"
        r"|turn(?:s|ed|ing)? off|power cycles?|crash(?:es)?) (?:the |my |our |whole |entire )*(?:computer|pc\b|machine"
        r"|workstation|server|desktop|system)",
        r"(?:computer|pc|machine|workstation|server|desktop|system|laptop)s? (?:\w+ ){0,4}?(?:shuts? (?:itself )?(?:down"
        r"|off)|shutting (?:down|off)|shutdowns?|reboots\b|restarts\b|rebooted|restarted|power(?:s|ed)? (?:itself )?off"
        r"|turn(?:s|ed) (?:itself )?off|loses? power|goes dark)",
        r"(?:hard|sudden|random|spontaneous|unexpected) (?:shut ?downs?|reboots?|restarts?|power[- ]?off)",
        r"(?:psu|power supply)~(?:trip|shut|ocp|insufficient|too weak|not enough|protection)",
        r"(?:电脑|主机|机器|服务器|系统)~(?:自动|突然|直接)?(?:关机|断电|重启|黑屏)|(?:突然|自动|直接)(?:关机|断电|重启)",
    ),
    report(
        "after-suspend",
        r"(?:after|since|upon|once|when|following|coming (?:back|out)|returning|wak\w+|resum\w+)~\b(?:suspend|resum|sleep"
        r"|slept|hibernat|standby|wak(?:e|ing))",
        r"\b(?:suspend|sleep|hibernat\w*)(?:ing)?[ /](?:and |then )?(?:resume|wake)",
        r"(?:resum\w+|wak\w+) from (?:suspend|sleep|hibernat|standby)",
        r"(?:suspend|sleep|resume)~(?:breaks?|kills?|loses?|broke)",
        r"(?:休眠|睡眠|挂起|待机)~(?:后|恢复|唤醒|之后)|唤醒(?:之)?后",
    ),
    report(
        "after-driver-update",
        rf"(?:after|since|following|when|once) (?:i |we |having )?(?:an? |the |my |automatic )*{_UPDATED}?~(?:nvidia "
        rf"|graphics |gpu |display |video )?drivers?\b",
        rf"{_UPDATED} (?:the |my |our |to |a |new |latest |nvidia |graphics |gpu |newer )*drivers?\b",
        r"drivers? (?:was |were |got |has been |have been )?(?:automatically )?(?:updated|upgraded|update\b|upgrade\b)",
        r"unattended[- ]upgrades?",
        r"(?:更新|升级|重装|安装)(?:了|完)?~驱动|驱动(?:程序)?(?:更新|升级)",
        words=("driver", "unattended", "驱动"),
    ),
    report(
        "after-kernel-update",
        rf"{_UPDATED}?~\bkernel (?:was |got |has been )?(?:automatically )?(?:updat|upgrad)\w*",
        rf"{_UPDATED} (?:\w+ ){{0,4}}?(?:linux )?kernel\b(?! image| module)",
        r"(?:new|newer|latest|different|recent) (?:linux )?kernel\b(?! image)",
        r"(?:boot\w*|switch\w*|mov\w+) (?:in)?to~kernel",
        r"(?:works?|true|fine|ok)~\bkernel \d\.\d+\S*~(?:false|fails?|not|broken|breaks)~\d\.\d",
        r"内核(?:更新|升级)|(?:更新|升级)(?:了|完)?~内核",
        words=("kernel", "内核"),
    ),
    report(
        "after-container-reload",
        r"daemon[- ]reload",
        r"containers?~(?:los(?:e|es|t|ing)|no longer (?:see|ha|detect|access)|can't see|can no longer)~(?:gpu|nvidia|cuda"
        r"|device)",
        r"(?:after (?:a while|some time|a few|several|\d+) ?(?:hours?|days?|minutes?)?)~(?:container|docker|pod)",
        r"(?:container|docker|pod)~after (?:a while|some time|(?:a few|several|\d+) (?:hours?|days?))",
        r"no-cgroups|systemd cgroup|cgroup driver",
        r"容器~(?:丢失|失去|掉|找不到|看不到)~(?:gpu|显卡)",
        words=("daemon", "container", "docker", "pod", "cgroup", "容器"),
    ),
    message(
        "docker-no-device-driver",
        r"could not select device driver",
        r"unknown (?:or invalid )?runtime (?:specified|name):? ?\"?nvidia",
        r"nvidia-container-(?:cli|runtime(?:-hook)?|toolkit)\"?:? (?:executable file not found|not found|no such file"
        r"|command not found|(?:is |was )?(?:not installed|missing))",
        r"failed to discover gpu vendor from cdi",
        r"nvidia-container-cli: \w+ error",
        r"unresolvable cdi devices",
        r"(?:no|missing|without|install\w*|need\w*) (?:the )?nvidia[- ]container[- ](?:toolkit|runtime)",
    ),
    message("container-driver-not-detected", r"nvidia driver was not detected", r"gpu functionality will not be available"),
    report(
        "ecc-error",
        r"uncorrectable ecc",
        r"(?:double|multi)[- ]bit (?:ecc|error)",
        r"ecc (?:memory )?errors?\b",
        r"row remap\w*~(?:pending|fail)|remapping failure",
        r"ecc ?(?:错误|报错)",
        words=("ecc", "remap"),
    ),
)
