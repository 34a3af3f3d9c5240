"""Devices in the program, and its loader's processes."""

from __future__ import annotations

from flatout.doctor.paste.messages.sentence import message, report

SENTENCES = (
    message(
        "invalid-device-ordinal",
        r"invalid device ordinal",
        r"invalid device id",
        r"device (?:id|index|ordinal)~(?:out of range|invalid|not exist|does not exist)",
        r"invalid cuda '?device=",
        r"attempting to deserialize object on cuda device \d",
        r"无效的设备序号|设备(?:编号|序号|索引)~(?:无效|越界|不存在)",
    ),
    message(
        "device-mismatch",
        r"expected all tensors to be on the same device",
        r"at least two devices",
        r"input type \(torch\.[\w.]+\) and weight type",
        r"expected object of (?:backend|device type) \w+ but got (?:backend|device type)",
        r"(?:tensors?|inputs?|arguments?|weights?|models?|parameters?)~(?:on|located on|to) (?:two |the )?(?:different"
        r"|same) (?:devices?|gpus?)",
        r"(?:tensor|buffer|input|indices|module)~(?:is|are|should be)(?: either)? on (?:the )?cpu,? (?:but|while|and"
        r"|or on the same)",
        r"different from other tensors",
        r"not (?:on|at|in) the same (?:device|gpu)",
        r"can't convert cuda:\d device type tensor to numpy",
        r"(?:张量|数据|模型)~(?:不在同一|不同)~(?:设备|gpu)|设备不一致",
    ),
    report(
        "visible-devices-ignored",
        r"visible_devices['\"\])]*~(?:no effect|has no|ignored|not work|doesn't work|does not work|doesn't take"
        r"|not respected|not being respected|not take effect|not honou?red|didn't work|cannot take effect|useless"
        r"|without effect)",
        r"(?:setting|set|changing|export\w*)~visible_devices~(?:still|always|anyway|but)~(?:gpu ?0|first|all|same|default"
        r"|cuda:0)",
        r"(?:ignor\w+|not respect\w*|doesn't respect)~cuda_visible_devices",
        r"visible_devices~(?:after|too late|late)~(?:import|init)",
        r"visible_devices['\"\])]*~(?:不起作用|无效|没用|没有用|没效果|没有效果|不生效|没生效|未生效)",
        words=("visible_devices",),
    ),
    message(
        "hip-error",
        r"\bhip(?: error\b|:? (?:device|invalid|failed))",
        r"\bhiperror\w+",
        r"rocblas error",
        r"hsa_status_error\w*",
        words=("hip", "rocblas", "hsa_"),
    ),
    report(
        "integrated-gpu-chosen",
        r"(?:igpu|integrated (?:gpu|graphics)|apu)~(?:is |gets |being )?(?:used|selected|chosen|picked|enumerated|listed"
        r"|detected|device 0|first|instead|default)",
        r"(?:us(?:es?|ing)|select\w*|pick\w*|choos\w*|default\w*|run\w*|enumerat\w*|on|to|with) (?:on |to |with |the |my "
        r"|an? |intel |amd |ryzen )*(?:igpu|integrated (?:gpu|graphics))",
        r"(?:用|使用|选择|跑在)(?:了|的)?~(?:核显|集显|集成显卡)",
        words=("igpu", "integrated", "apu", "核显", "集显", "集成显卡"),
    ),
    message(
        "bus-error-in-worker", r"killed by signal: bus error", r"\bbus error\b", r"dataloader worker~bus error", r"总线错误"
    ),
    message(
        "shared-memory-exhausted",
        r"insufficient shared memory",
        r"out of shared memory",
        r"/dev/shm~(?:full|too small|no space|exhaust|64 ?m|limit|size|不足)",
        r"no space left on device~(?:shm|torch_)|(?:shm|torch_\d)~no space left on device",
        r"unable to (?:write to file|open shared memory object|allocate shared memory|mmap)~",
        r"shared memory~(?:too small|insufficient|exhaust|limit|run out|ran out|not enough)",
        r"(?:increase|raise|enlarge)~(?:shm|shared memory)|--shm-size|--ipc[= ]host|shm_size",
        r"共享内存(?:不足|不够|太小)",
        words=("shm", "shared memory", "torch_", "mmap", "共享内存"),
    ),
    message(
        "pin-memory-thread-exited",
        r"pin[_ -]memory thread",
        r"pin_memory~(?:thread|crash|error|fail|hang|exit)",
        r"in _pin_memory_loop",
        r"pin_memory线程|锁页内存线程",
    ),
    message(
        "spawn-bootstrapping",
        r"freeze_support",
        r"bootstrapping phase",
        r"before the current process has finished",
        r"attempt has been made to start a new process",
        r"(?:missing|without|no|lacks?|add|need\w*|forgot\w*|缺少|没有|没加)~if __name__ ?==",
        r"__main__['\"]? ?(?:guard|保护)",
        r"(?:script|program|main)~(?:runs?|executed|re-?run|imported) (?:again|multiple times|twice|repeatedly)~(?:worker"
        r"|process)",
    ),
    message(
        "workers-zero",
        r"num_workers?['\"]? ?(?:=|:|==|is|to|set to|was|at|of|设为|设置为|为)+ ?0\b",
        r"num_workers~(?:set|equals?|changed?|left|kept|default\w*)(?: to| at| as)? ?(?:0\b|zero)",
        r"\b(?:zero|0|no) (?:dataloader |data ?loading |loader )?workers\b",
        r"does not have many workers",
        r"(?:--?(?:num[-_])?|\b)workers ?[= ] ?0\b",
        r"(?:only )?(?:works?|run) with (?:num_workers|workers) ?=? ?0",
        words=("worker",),
    ),
    report(
        "loader-waits",
        r"data ?-?load(?:er|ers|ing)?\b~(?:bottleneck|slow|takes?|taking|wait|starv|majority|most of|too long|dominat"
        r"|limit|keep up|lags?)",
        r"(?:bottleneck|bottlenecked|limited|bound|starv\w*|wait\w*|block\w*)~(?:data ?load\w*|batch(?:es)?|loader"
        r"|input pipeline|\bi/?o\b|disk|augment\w*|preprocess\w*|decod\w*)",
        r"(?:batch(?:es)?|data|images?)~(?:is |are )?(?:being )?load(?:ed|ing)?~(?:slow|bottleneck|wait|too long)",
        r"(?:bottleneck|slow|wait\w*)~(?:while|when|during)~(?:batch|data|load)",
        r"util\w*~(?:fluctuat|oscillat|jump|drops? to (?:0|zero)|spik|up and down|periodic|waves?|goes? (?:back )?to (?:0"
        r"|zero)|unstable)",
        r"fluctuan?t",
        r"(?:0 ?%?|zero) ?(?:-|to|and|\x7e|到) ?(?:100|9\d) ?%~(?:util|usage|gpu)",
        r"(?:can't|cannot|not|doesn't) keep (?:up with )?(?:the )?(?:gpu|card)",
        r"(?:idle|waits?|pauses?|stalls?) between (?:batches|epochs|steps|iterations)",
        r"(?:cpu|one core|single core)~100 ?%~gpu~(?:idle|low|0 ?%)",
        r"数据(?:加载|读取|预处理)~(?:慢|瓶颈|太久|耗时)|等待数据|(?:利用率|使用率)~(?:波动|忽高忽低|跳动|不稳定)",
    ),
)
