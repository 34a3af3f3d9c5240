"""Architectures, wheels, libraries and environments."""

from __future__ import annotations

from flatout.doctor.paste.messages.sentence import message, report

_TORCH = r"(?:py)?torch"
_PLACE = r"(?:jupyter|vs ?code|pycharm|notebook|spyder|ide\b|terminal|anaconda|conda|cmd|shell|console|webui|the app|command)"

SENTENCES = (
    message(
        "no-kernel-image",
        r"no kernel image",
        r"cudaerrornokernelimagefordevice",
        r"没有可用的内核(?:映像|镜像)",
    ),
    message(
        "torch-not-compiled-with-cuda",
        r"torch not compiled with cuda",
        rf"{_TORCH}~(?:not|wasn't|isn't) (?:built|compiled|linked)~(?:with|against) (?:cuda|gpu)",
        rf"{_TORCH}~(?:built|compiled) without (?:cuda|gpu)",
        rf"{_TORCH}~(?:no|without|lacks?|lacking|missing) (?:cuda|gpu)[- ](?:support|enabled)",
        r"torch没有(?:用|启用)?cuda编译|(?:torch|pytorch)~编译时未~cuda",
    ),
    message(
        "no-matching-distribution",
        r"no matching distribution found",
        r"could not find a version that satisfies the requirement",
        r"is not a supported wheel on this platform",
        r"no wheels? (?:available )?(?:with a matching|for (?:your |this )?(?:python|platform))",
        r"has no wheels with a matching",
        r"no solution found when resolving~torch",
        r"unable to find installation candidates for torch",
        r"packagesnotfounderror~",
        r"(?:no|without) (?:pre-?built )?(?:wheels?|binar(?:y|ies)|packages?)~(?:for|on) python ?3",
        r"找不到(?:满足|符合)~(?:版本|要求)|没有(?:匹配|找到匹配)的(?:发行版|版本)",
    ),
    message(
        "dll-not-found",
        r"winerror (?:126|127|182|1114)\b",
        r"dll load failed",
        r"找不到指定的模块|动态链接库\(dll\)初始化例程失败",
        r"error loading ['\"]?[^\n'\"]{0,200}\.dll",
        r"\.dll~(?:was not found|is missing|not found|could not be found|缺失|丢失)",
        r"the specified (?:module|procedure) could not be found",
    ),
    message("shared-library-not-found", r"cannot open shared object file", r"could not load (?:dynamic )?library ['\"]?lib"),
    message(
        "cudnn-version-mismatch",
        r"(?:cudnn|cublas)\S*~version mismatch",
        r"cudnn version (?:incompatib|mismatch)",
        r"cudnn_status_(?:sub)?library_version_mismatch|cudnn_status_version_mismatch",
        r"compiled against \(\d+, \d+, \d+\)",
        r"loaded runtime cudnn library",
        r"(?:mixed|different|two|wrong|older|another|conflicting) (?:versions? of )?cudnn",
        r"(?:system|wrong|other|older|global|another|host|cluster)(?:'s|-wide)? (?:\w+ ){0,2}?(?:cudnn|cublas|nccl"
        r"|cuda librar\w+)~(?:loaded|picked|used|found|instead|first|shadow|conflict|mixed|wins|preced)",
        r"(?:cudnn|cublas|nccl)~(?:instead of|before|over|rather than) (?:the )?(?:bundled|pip|wheel|torch|pytorch|one)",
        r"(?:conflict\w*|mix\w*|clash\w*|mismatch\w*)~(?:cudnn|cublas)|(?:cudnn|cublas)~(?:conflict|mixed|clash)",
        r"cudnn ?版本(?:不匹配|不一致|冲突)",
        words=("cudnn", "cublas", "nccl", "compiled against", "cuda librar"),
    ),
    message(
        "undefined-symbol",
        r"undefined symbol:? ?[\w@]",
        r"symbol lookup error",
        r"with link time reference",
        r"undefined reference to `?cu",
    ),
    message(
        "triton-missing",
        r"cannot find a working triton",
        r"no module named ['\"]?triton\b",
        r"triton (?:is |was )?(?:not|isn't) (?:available|installed|supported|found)",
        r"tritonmissing|triton not found",
        r"(?:no|without|missing|needs?|requires?) (?:a )?(?:working )?triton\b",
        r"(?:没有|缺少|未安装|找不到) ?triton",
        words=("triton",),
    ),
    report(
        "works-elsewhere",
        rf"(?:available|works?|true|fine|detect\w*|recogni\w*)~(?:in|from|under|inside) (?:the |my |an? )?{_PLACE}"
        rf"~(?:but|while|whereas|however|not)~(?:not|false|fail\w*|isn't|doesn't|no)~{_PLACE}",
        rf"(?:false|fails?|not|unavailable)~(?:in|from|under|inside) (?:the |my |an? )?{_PLACE}"
        rf"~(?:but|while|whereas|however|though)~(?:available|works?|true|fine|detect\w*)~{_PLACE}",
        r"works? (?:just |perfectly |totally )?(?:fine |well |correctly |properly |ok |okay )?(?:when \w+ )?(?:in|from"
        r"|with|under|inside|using) (?:a |an |the |my |another |other |different |separate |plain |normal |base |system "
        r"|fresh |same )*(?:conda |virtual |python |standalone |native )*(?:env\b|environment|interpreter|venv|virtualenv"
        r"|terminal|command line|cmd|shell|console|prompt|conda\b|python\b)",
        r"(?:plain|normal|standalone|system|base|another|global) (?:\w+ )?(?:python|interpreter|env\w*|venv|terminal"
        r"|console|shell)~(?:works|true|is fine|detects|sees)",
        r"true in (?:the |my )?(?:terminal|cmd|conda|shell|console|command|python|powershell|ipython|base)~false in",
        r"false in (?:the |my )?(?:jupyter|vs ?code|pycharm|notebook|ide|webui|app|spyder)~true in",
        r"(?:different|wrong|another|separate) (?:python |conda |virtual )*(?:environment|interpreter|venv|env\b|python\b"
        r"|kernel)",
        r"(?:jupyter|vs ?code|pycharm|notebook|spyder)~(?:but|while|whereas|however)~(?:terminal|command line|cmd|console"
        r"|anaconda prompt)~(?:true|works|fine|detect)",
        r"(?:two|several|multiple) (?:python|torch|pytorch)s?~(?:install|environment|interpreter|version)",
        r"(?:终端|命令行|cmd|另一个环境|base ?环境|其他环境)~(?:正常|可以|为true|是true|返回true|true)",
        r"(?:环境|解释器)(?:选错|不对|错了|不一致|不是同一个)",
    ),
    report(
        "old-architecture",
        r"(?:drop(?:s|ped|ping)?|remov(?:es|ed|ing)|no longer (?:support|ship|includ|contain)\w*|end(?:s|ed)? support"
        r"|deprecat\w+|unsupported|not supported|without)~\b(?:pascal|maxwell|kepler|volta|fermi|sm_?[3-7]\d\b|(?:cc"
        r"|capability) ?[3-7]\.\d)",
        r"\b(?:pascal|maxwell|kepler|volta|fermi)\b~(?:drop|remov|no longer|unsupported|not supported|not work"
        r"|doesn't work|fail|end of support)",
        r"(?:old|older|legacy) (?:gpu |nvidia |cuda )?(?:architectures?|generations?|gpus?\b|cards?\b)",
        r"gpu~(?:is |because it is )too old",
        r"no longer (?:support\w*|works?|runs?)~(?:in|with|by|on|since|under)~(?:cu1[2-9]\d|torch|cuda 1[2-9])",
        r"no longer supports this gpu",
        r"minimum cuda capability supported",
        r"(?:老|旧)(?:显卡|架构|卡)|(?:不再|已不)支持~(?:pascal|maxwell|kepler|volta|帕斯卡)",
    ),
)
