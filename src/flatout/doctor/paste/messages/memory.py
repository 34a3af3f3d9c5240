"""The card's memory: full, held, in pieces, spilt."""

from __future__ import annotations

from flatout.doctor.paste.messages.sentence import message, report

_MEMORY = r"(?:memory|vram|ram\b|gpu mem\w*|\d+(?:\.\d+)? ?(?:gb|gib|mib|mb|g)\b|显存)"

SENTENCES = (
    message(
        "out-of-memory",
        r"(?<!error 2: )cuda~out of memory",
        r"\boutofmemoryerror\b",
        r"\bcuda_error_out_of_memory\b",
        r"tried to allocate \d",
        r"显存(?:不足|不够|溢出|爆了)|爆显存|gpu内存不足",
    ),
    report(
        "out-of-memory",
        r"(?<!any )\booms?\b(?! killer)",
        r"(?:runs?|ran|running) out of (?:gpu |video |cuda |v)?(?:memory|ram)",
    ),
    report(
        "memory-fragmented",
        r"fragment(?:ed|ation|s)\b",
        r"expandable[_ ]segments|garbage_collection_threshold|max_split_size|roundup_power2",
        r"(?:allocator|alloc_conf)~(?:setting|config|option|backend|cudamallocasync|native|default)",
        r"depending on (?:the )?allocator",
        rf"(?:out of memory|oom)~(?:despite|although|even though|though|while|but|with)~(?:free|available|unused|enough"
        rf"|plenty|half|only \d+ ?%)~(?:{_MEMORY})?",
        rf"{_MEMORY}~(?:cannot|can't|can not|could not|couldn't|not) be (?:utili[sz]ed|reserved|allocated|used)",
        rf"(?:\d+ ?%|half|most) of (?:the |my )?(?:gpu |available )?{_MEMORY}~(?:cannot|can't|unused|wasted|not used|unusable)",
        r"(?:enough|plenty of|lots of|sufficient|still) (?:free |available )?(?:gpu |v)?(?:memory|ram)~(?:but|yet|still"
        r"|however)~(?:oom|out of memory|fail)",
        r"reserved~(?:much (?:more|larger|higher)|far more|>>)~allocated",
        r"显存碎片|碎片化|还有~显存~(?:不足|报错|oom)",
    ),
    report(
        "memory-not-released",
        rf"(?:still|keeps?|kept|remains?|continues?)(?: to)? (?:hold|occup|us|allocat|tak|consum|reserv|full"
        rf"|in use)\w*~{_MEMORY}",
        rf"{_MEMORY}~(?:still|remains?|stays?) (?:occupied|in use|used|allocated|full|taken|held)",
        rf"{_MEMORY}~(?:is |was |are )?(?:not|never|isn't|wasn't|doesn't get|won't be) (?:being )?(?:released|freed"
        rf"|cleared|reclaimed)",
        r"(?:doesn't|does not|didn't|did not|won't|cannot|can't) (?:release|free|clear|reclaim)~(?:memory|vram)",
        rf"(?:no|without|not show(?:ing)?(?: any)?|shows no|doesn't show(?: any)?|not list\w*(?: any)?|empty) (?:running "
        rf"|gpu |visible |active |other )*process(?:es)?~(?:(?:using|hold\w*|occup\w*|uses?) )?{_MEMORY}",
        rf"{_MEMORY}~(?:in use|used|occupied|taken|gone|allocated)~(?:no|without|not any|shows no|nvidia-smi)~process",
        rf"{_MEMORY}~(?:occupied|in use|used|taken|full|allocated)~(?:although|even though|while|despite|but|with)~(?:no"
        rf"|nothing"
        r"|not|without)~(?:process|training|program|running|script|job)",
        r"zombie|orphan(?:ed)? (?:process|worker)|stale (?:process|context)|defunct",
        r"kill\w*~no such process|no such process",
        r"(?:another|other|someone else's|different|else's) (?:process|user|job|program|container|session"
        r"|application)(?:es|s)?(?:'s)?~(?:us(?:es|ing|ed)|hold|occup|tak|consum|alread)\w*~(?:memory|vram|gpu|card)?",
        r"显存~(?:没有|未|不|没)(?:被)?释放|占(?:用|着|满)~显存|显存~(?:占用|占满)|僵尸进程|(?:其他|别的|别人)~(?:进程|用户|程序)~占",
    ),
    report(
        "memory-spill",
        r"shared gpu memory|shared video memory|shared memory usage",
        r"sys(?:tem)? ?mem(?:ory)? fallback",
        r"(?:spill|overflow|offload|swap|leak|mov|fall\w* back|fallback)\w*~(?:in)?to (?:the )?(?:system|host|shared|cpu"
        r"|main|regular|normal) ?(?:gpu )?(?:memory|ram)",
        r"(?:uses?|using) (?:system|shared|host|cpu) (?:gpu )?(?:ram|memory)~(?:instead|when|once|after)",
        r"(?:vram|gpu memory|显存)~(?:full|exceed|maxed|满)~(?:slow|crawl|慢)",
        r"(?:slow|crawl)\w*~(?:instead of|rather than)~(?:oom|out of memory|crash)",
        r"共享 ?gpu ?内存|共享显存|溢出到~内存",
    ),
    report(
        "memory-grows",
        r"memory leak|leaks? (?:gpu )?(?:memory|vram)|leaking (?:memory|vram)",
        r"(?:memory|vram)(?: usage| use| consumption)? (?:keeps?|kept|continu\w+|constantly|steadily|gradually"
        r"|slowly)~(?:grow|increas|ris|climb)",
        r"显存(?:泄漏|不断(?:增长|增加|上涨)|越来越(?:多|大|高)|持续(?:增长|增加|上涨))|内存泄漏",
    ),
)
