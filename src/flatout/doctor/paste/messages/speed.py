"""Slow: clocks, heat, power, the bus, and what only looks so."""

from __future__ import annotations

from flatout.doctor.paste.messages.sentence import message, report

_SLOW = (
    r"(?:slow\w*|takes? (?:forever|ages|too long|much longer|so long|longer|minutes|hours)|crawl\w*|performance (?:drop"
    r"|regress|degrad|loss|tank)\w*|(?:speed|it/s|iterations/s|throughput|fps|its/s)[^\n]{0,20}(?:drop|halv|decreas|fell"
    r"|fall|lower|worse|tank)\w*|half the speed|low(?:er)? it/s|(?:halve|drop)s?\b)"
)
_UPDATE = (
    r"(?:updat\w+|upgrad\w+|new(?:er|est)? (?:nvidia |gpu )?(?:version|driver)s?|latest (?:nvidia |gpu )?(?:version|driver"
    r"|release)|(?:nvidia |gpu |graphics )?drivers? (?:5[3-9]\d|update|upgrade))"
)
_SCREEN = r"(?:monitors?|displays?|screens?|rdp|remote desktop|browser|window)"

SENTENCES = (
    report(
        "slow-after-update",
        rf"{_SLOW}~(?:after|since|following|with|on|due to) (?:the |an? |my |i |we )*{_UPDATE}",
        rf"(?:after|since|following) (?:the |an? |my |i |we |last |latest |recent )*{_UPDATE}~{_SLOW}",
        rf"{_UPDATE}~(?:made|makes|making|became|becomes?|caus\w+|got|is now|now)~{_SLOW}",
        r"(?:更新|升级)~(?:变慢|很慢|慢了|速度下降)",
    ),
    report(
        "slower-over-time",
        r"(?:gets?|got|becom\w+|getting|goes|growing) (?:progressively |gradually |steadily |more and more |much "
        r"|significantly )*slower",
        r"slow(?:s|ed|ing)? down~(?:over time|after (?:a few|some|several|a while|\d+)|gradually|progressively|each|every|as)",
        r"(?:starts?|begins?) (?:fast|fine|quick\w*|at full)~(?:then|but|and)~(?:slow|drop)",
        r"(?:after|for) (?:the first )?(?:a few |some |several |\d+ )(?:minutes?|hours?|epochs?|steps?"
        r"|iterations?)~(?:slow|clock\w* drop|speed drop)",
        r"越来越慢|一段时间后~(?:变慢|慢|降速)|逐渐变慢",
    ),
    report(
        "slow-when-display-off",
        rf"{_SLOW}~(?:when|if|once|while|after|as soon as)~{_SCREEN}~(?:off|sleep|asleep|lock\w*|minimi[sz]ed|blank"
        rf"|disconnect\w*|unplugged|not in focus|background)",
        rf"{_SCREEN}~(?:off|sleep|asleep|lock\w*|minimi[sz]ed|blank|disconnect\w*|in the background)~{_SLOW}",
        rf"{_SLOW}~(?:when|if|once|while)~(?:turn\w*|switch\w*|put\w*)~(?:off|sleep)~{_SCREEN}",
        rf"{_SLOW}~(?:turns? off|sleeps?|locks?|puts?)~{_SCREEN}",
        r"(?:显示器|屏幕|锁屏|息屏)~(?:变慢|慢|降速|减半)",
    ),
    report(
        "stuck-in-low-clocks",
        r"(?:stuck|stays?|locked|remains?|sits|hang\w*|idl\w+|never leaves?|always) (?:\w+ )?(?:in|at|on"
        r"|to) (?:the )?(?:\w+ )?(?:p ?(?:5|8|12)\b|p-?state|low[- ]power|idle (?:clock|state|freq)|(?:1|2|3|4|5"
        r"|6)\d\d ?mhz|low clocks?|base clock|power[- ]sav)",
        r"(?:clocks?|clock speed|frequency|core clock|sm clock|boost)\b~(?:stuck|locked|stays?|remain\w*|only|drops?"
        r"|capped|fixed|won't go|doesn't go|not go\w*) (?:\w+ )?(?:at|to|in|above|over|up)? ?(?:around |about "
        r"|\x7e)?(?:low|idle|(?:1|2|3|4|5|6)\d\d ?mhz|minimum)",
        r"(?:not|doesn't|does not|won't|never|isn't|fails? to) (?:\w+ )?boost(?:ing|s)?\b",
        r"(?:gpu|card|it) (?:stays|remains|runs|is|keeps) (?:\w+ )?(?:cool|cold)",
        r"low[- ]power (?:state|mode)|power[- ]saving (?:state|mode)",
        r"p8~(?:under load|while|during|training|when|full load)",
        r"(?:频率|核心频率)~(?:锁|卡|停)在|卡在 ?p8|(?:一直|始终)(?:在|是|处于) ?p8|(?:低频|低功耗)状态|跑不满频率",
    ),
    report(
        "thermal-slowdown",
        r"thermal (?:throttl\w*|slowdown|limit\w*|shutdown)(?! ?:| temp| t\.limit)",
        r"throttl\w*~(?:temperature|temp\b|temps\b|heat|hot\b|thermal|overheat|\d{2,3} ?°? ?c\b)",
        r"(?:temperature|temps?\b|heat|hot\b|overheat\w*)~throttl",
        r"overheat(?:s|ed|ing)?",
        r"(?:\bhot\b|\b(?:8[5-9]|9\d|10\d) ?°? ?c\b)~(?:lower\w*|drop\w*|reduc\w*|throttl\w*|slow\w*)~(?:clock|speed"
        r"|frequenc|train|perform|slower)",
        r"(?:reach\w*|hit\w*|at|exceed\w*|over|above|up to) (?:8[5-9]|9\d|1[01]\d) ?(?:°|degrees|deg|℃)? ?c?\b~(?:throttl"
        r"|clock|slow|drop)",
        r"过热|温度(?:过高|太高|墙)|高温降频",
    ),
    report(
        "power-capped",
        r"sw power cap(?! ?: ?not)",
        r"power[- ](?:cap(?:ped|ping)|limit(?:ed|ing)|throttl\w*|brake)\b(?! ?:)",
        r"(?:hit\w*|reach\w*|low(?:er\w*)?|reduc\w*|at (?:the|its)|stuck at|held (?:back )?by"
        r"|because of) (?:\w+ ){0,3}?power (?:limit|cap)\b(?! ?:)",
        r"power (?:limit|cap)\b~(?:too low|reached|hit\b|is low|only \d|\d{2,3} ?w\b~(?:slow|instead|of|\d{3} ?w))",
        r"(?:capped|limited|stuck|locked|restricted) (?:at|to) (?:only |around |about |\x7e)?\d{2,3} ?w(?:atts?)?\b",
        r"(?:draws?|drawing|uses?|using|consum\w+|pulls?|pulling)~(?:only|just|never more than|no more than"
        r"|at most) (?:around |about |\x7e)?\d{2,3} ?w(?:atts?)?\b",
        r"(?:only|just|never (?:exceeds?|above|more than|over)) (?:draws? |uses? |pulls? )?(?:around |about "
        r"|\x7e)?\d{2,3} ?w(?:atts?)?\b",
        r"功耗(?:墙|限制|被限|只有|上不去)|功率(?:限制|上限|只有|被限)",
        words=("power", "watt", "w ", "w,", "w.", "w\n", "w)", "功耗", "功率"),
    ),
    report(
        "pcie-narrow",
        r"(?:pci-?e?|link|bus|lanes?|slot|gen ?\d)\b~\b(?:x ?[1248]|[1248] ?x|[1248] lanes?)\b(?! ?16)",
        r"\bx ?[1248]\b~(?:instead of|rather than|not|vs\.?|of) x? ?16",
        r"(?:lower|reduced|narrow\w*|downgraded|degraded|fewer|half) (?:pcie? )?(?:link )?(?:width|lanes?|bandwidth)",
        r"(?:pci-?e?|link|h2d|host[- ]to[- ]device|host to device|transfer|copy|bus)\b~(?:bandwidth|speed|rate"
        r"|link)~(?:low\b|slow|limited|bottleneck|downgrad|degrad|only|reduced)",
        r"(?:riser|chipset(?:[- ]attached|[- ]lanes?)|usb riser|mining riser)",
        r"width x\d+ \(downgraded\)",
        r"pcie~(?:降级|降速|带宽(?:低|不足)|只有)|带宽只有|通道数(?:不足|只有)",
        words=("pci", "lane", "riser", "chipset", "width", "link", "x16", "h2d", "host", "带宽", "通道"),
    ),
    report(
        "slow-storage",
        r"\b(?:hdd|hard (?:disk|drive)s?|spinning disk|nfs|network (?:drive|storage|share|disk|mount)|slow (?:disk|storage"
        r"|drive)|disk i/?o|disk read|lustre|s3 bucket|google drive)\b",
        r"/mnt/[c-f]/",
        r"机械硬盘|网络(?:存储|磁盘|盘)|硬盘~(?:慢|瓶颈)|磁盘读取",
    ),
    report(
        "loss-explodes",
        r"\bloss\b~(?:\bnan\b|explod|diverg|\binf\b|infinity)",
        r"\bnan\b loss",
        r"损失~(?:爆炸|nan|发散)|loss ?爆炸",
    ),
    report(
        "gpu-switched-off",
        r"\beco (?:mode|flag)\b|gpueco ?= ?1",
        r"(?:disappear|vanish|missing|gone|not (?:shown|listed|visible|present|show)|no longer (?:shown|listed|visible"
        r"|appears?))\w*~device manager",
        r"device manager~(?:disappear|vanish|missing|gone|no longer|does(?:n't| not) (?:show|list)|not (?:show|list)"
        r"|only~(?:intel|amd|integrated|igpu))",
        r"integrated[- ](?:graphics[- ])?(?:only|mode)|igpu[- ](?:only|mode)|hybrid (?:mode|graphics)|\boptimus\b",
        r"prime-select (?:intel|on-demand)|envycontrol~integrated|supergfxctl~integrated|switcheroo",
        r"(?:dgpu|discrete (?:gpu|graphics)|dedicated (?:gpu|graphics))~(?:disabled|off\b|powered (?:off|down)|turned off"
        r"|disappear\w*|missing|gone|not (?:detected|found|visible|available))",
        r"(?:disabl|turn\w* off|power\w* (?:off|down))\w*~(?:dgpu|discrete (?:gpu|graphics)|dedicated (?:gpu|graphics))",
        r"集显模式|独(?:立)?显(?:卡)?~(?:关闭|消失|禁用|不见|被关|没有了|直连)|节能模式~独显|设备管理器~(?:看不到|消失|没有|不显示)",
    ),
)
LOW_UTILISATION = (
    r"(?:low|poor|bad|small|little|under|tiny|weak) ?(?:volatile )?(?:average )?(?:gpu[- ]?)?(?:util\w*|usage|load)\b",
    r"(?:gpu[- ]?|volatile )(?:util\w*|usage|load)(?: rate)?(?: is| was| stays| remains)? (?:very |extremely |quite |too "
    r"|really |so |always |constantly |unusually )*(?:low|poor|bad|small|near zero|close to (?:0|zero))",
    r"(?:not|isn't|never|barely|hardly|under-?) ?(?:being )?(?:fully |properly |well )?(?:utili[sz]\w+|used at (?:full"
    r"|100))~gpu|gpu\w*~(?:not|isn't|never|barely|hardly|under-?) ?(?:being )?(?:fully |properly |well |really )?utili[sz]",
    r"gpus? (?:is |are |sits? |stays? )?(?:mostly |often |largely |almost )?idl(?:e|es|ing)~(?:most|time|wait|while"
    r"|between|during)",
    r"(?:gpu|显卡) ?(?:的)?(?:利用率|使用率|占用率?)~(?:很|过|太|较|特别|非常|极)?低|(?:利用率|使用率)(?:上不去|跑不满|不高)",
)
PERCENT = (
    r"(?:gpu|volatile|util\w*|usage)(?:[- ]?(?:util\w*|usage|load))?[^\n%.]{0,40}?(?:only|just|at|around|about|below|under"
    r"|exceeds?|above|over|than|is|stays|averag\w+|\x7e|reach\w*|max\w*|peaks?)[^\n%]{0,14}?\b(\d{1,2})(?: ?- ?\d{1,2})? ?%",
    r"\b(\d{1,2})(?: ?- ?\d{1,2})? ?%\)? (?:of (?:the |my )?)?(?:gpu[- ]?)?(?:util\w*|usage|load)\b",
    r"(?:利用率|使用率|占用率?)(?:只有|仅|大约|约|不到|才|在|为|是|低于|不超过)+ ?(\d{1,2}) ?%",
)
HEALTHY = (
    message(
        "task-manager",
        r"task manager~(?:0 ?%|1 ?%|2 ?%|3 ?%|low|no gpu|not|nothing|zero|doesn't|barely)",
        r"(?:0 ?%|low|not|no)~(?:in|by|on|from|per) (?:the )?(?:windows )?task manager",
        r"任务管理器~(?:0 ?%|没有|不显示|很低|几乎)",
        words=("task manager", "任务管理器"),
    ),
    message(
        "pcie-idle",
        r"(?:pci-?e?|link)~gen(?:eration)? ?1\b",
        r"gen ?1 ?@ ?(?:16|8) ?x",
        r"2\.5 ?gt/s",
        words=("pci", "gen", "gt/s"),
    ),
    message(
        "idle-low-clocks",
        r"(?:idle|idling|nothing (?:is )?running|nothing runs|not running anything|no load|空闲|闲置)~(?:p8|p-?state|210 ?mhz"
        r"|low clock|300 ?mhz)",
        r"(?:p8|210 ?mhz|low clock\w*)~(?:at idle|when idle|while idle|idling|nothing (?:is )?runn\w*|nothing runs|no load"
        r"|without (?:any )?load|空闲)",
        words=("idle", "idling", "nothing", "load", "空闲", "闲置"),
    ),
    message(
        "smi-cuda-differs",
        r"nvidia-smi~cuda~(?:different|differs|but|while|whereas|mismatch|not the same|instead)~(?:nvcc|torch|toolkit"
        r"|installed)",
        r"(?:nvcc|torch\S*|toolkit)~(?:but|while|whereas|different|differs|mismatch)~nvidia-smi~(?:cuda|\d\d\.\d)",
        words=("nvidia-smi",),
    ),
)
