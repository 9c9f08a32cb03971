"""What a pattern alone cannot say of a secret: checksums, number plans, and whether a value is a stand-in.

A check gets what a pattern matched and answers how many of its first characters are the secret, 0 where it is none. The
patterns of checked rules are wide, so a text with digits is searched again only where one of them really holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_IBAN_LENGTHS = {
    code: int(length)
    for length, codes in {
        "15": "NO", "16": "BE", "18": "DK FI FO GL NL SD FK", "19": "MK SI", "20": "AT BA EE KZ LT LU XK MN",
        "21": "CH HR LI LV", "22": "BG BH CR DE GB GE IE ME RS", "23": "AE GI IL IQ OM SO TL", "24": "AD CZ DZ ES MD PK RO SA SE SK TN VG",
        "25": "PT ST LY", "26": "IS TR", "27": "BJ BF CM FR GR IT MC MG MR SM SN CI DJ CG", "28": "AL AZ BY CY DO GT HN HU LB NI PL SV",
        "29": "BR EG PS QA UA", "30": "JO KW MU YE", "31": "MT SC", "32": "LC", "33": "RU",
    }.items()
    for code in codes.split()
}  # fmt: skip
"""Country -> characters of its account numbers (ISO 13616)."""

_CALLING_CODES = frozenset(
    [
        "1",
        "7",
        "20",
        "27",
        "30",
        "31",
        "32",
        "33",
        "34",
        "36",
        "39",
        "40",
        "41",
        "43",
        "44",
        "45",
        "46",
        "47",
        "48",
        "49",
        "51",
        "52",
        "53",
        "54",
        "55",
        "56",
        "57",
        "58",
        "60",
        "61",
        "62",
        "63",
        "64",
        "65",
        "66",
        "81",
        "82",
        "84",
        "86",
        "90",
        "91",
        "92",
        "93",
        "94",
        "95",
        "98",
        "211",
        "212",
        "213",
        "216",
        "218",
        "220",
        "221",
        "222",
        "223",
        "224",
        "225",
        "226",
        "227",
        "228",
        "229",
        "230",
        "231",
        "232",
        "233",
        "234",
        "235",
        "236",
        "237",
        "238",
        "239",
        "240",
        "241",
        "242",
        "243",
        "244",
        "245",
        "246",
        "248",
        "249",
        "250",
        "251",
        "252",
        "253",
        "254",
        "255",
        "256",
        "257",
        "258",
        "260",
        "261",
        "262",
        "263",
        "264",
        "265",
        "266",
        "267",
        "268",
        "269",
        "297",
        "298",
        "299",
        "350",
        "351",
        "352",
        "353",
        "354",
        "355",
        "356",
        "357",
        "358",
        "359",
        "370",
        "371",
        "372",
        "373",
        "374",
        "375",
        "376",
        "377",
        "378",
        "380",
        "381",
        "382",
        "383",
        "385",
        "386",
        "387",
        "389",
        "420",
        "421",
        "423",
        "500",
        "501",
        "502",
        "503",
        "504",
        "505",
        "506",
        "507",
        "508",
        "509",
        "590",
        "591",
        "592",
        "593",
        "594",
        "595",
        "596",
        "597",
        "598",
        "599",
        "670",
        "672",
        "673",
        "674",
        "675",
        "676",
        "677",
        "678",
        "679",
        "680",
        "681",
        "682",
        "683",
        "685",
        "686",
        "687",
        "688",
        "689",
        "690",
        "691",
        "692",
        "800",
        "850",
        "852",
        "853",
        "855",
        "856",
        "880",
        "886",
        "960",
        "961",
        "962",
        "963",
        "964",
        "965",
        "966",
        "967",
        "968",
        "970",
        "971",
        "972",
        "973",
        "974",
        "975",
        "976",
        "977",
        "979",
        "992",
        "993",
        "994",
        "995",
        "996",
        "998",
    ]
)
"""Of countries (ITU-T E.164)."""

_STAND_IN = re.compile(
    r"(?i)(?:string|str|text|number|integer|boolean|bool|object|array|any|null|none|nil|undefined|true|false|yes|no|n/?a|"
    r"required|optional|enabled|disabled|hidden|redacted|masked|empty|dummy|placeholder|unused|not[-_ ]?(?:needed|required|set)|"
    r"password|passwd|secret|token|api[-_ ]?key|your[-_ ].*|<.*>|\$\w+|\$?\{.*\}|%\w+%|[*x.•\-]+|\[?(?:redacted|filtered)[:\]].*|"
    r"process\.env\..*|os\.(?:environ|getenv).*)?"
)
_PATH = re.compile(r"(?:~|\.{1,2})?/(?:[\w.\-]+/)*[\w.\-]*")
_NO_DOMAINS = frozenset(
    [
        "png",
        "jpg",
        "jpeg",
        "gif",
        "webp",
        "svg",
        "ico",
        "bmp",
        "avif",
        "js",
        "jsx",
        "mjs",
        "tsx",
        "css",
        "scss",
        "html",
        "json",
        "yaml",
        "yml",
        "toml",
        "txt",
        "csv",
        "tgz",
        "gz",
        "bz2",
        "xz",
        "whl",
        "jar",
        "exe",
        "service",
        "socket",
        "target",
        "timer",
        "slice",
        "scope",
        "mount",
        "path",
        "transpose",
        "weight",
        "weights",
        "reshape",
        "shape",
        "inverse",
        "conj",
        "detach",
        "matmul",
        "mean",
        "numpy",
        "permute",
        "squeeze",
        "unsqueeze",
        "view",
    ]
)
"""Last parts of names that follow an @ in code and in listings, and that are no top level domain."""
_NOBODY = re.compile(r"(?i)(?:no|do-?not)[-_.]?reply")
_STAMP = re.compile(
    r"\+(?:19|20)[0-9]{2}(?:[-.](?:0[1-9]|1[0-2])[-.](?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?:[01][0-9]|2[0-3])[0-5][0-9][0-5][0-9]\b)"
)
_DOTTED_NAME = re.compile(r"[A-Za-z_]\w*(?:(?:\.|->|::)\w+)+")


def luhn(found: str) -> int:
    """A payment card: an issuer's prefix and length, and Luhn's checksum. Whatever digits stand behind it belong to it."""
    digits = [character for character in found if character.isdigit()]
    for length in (19, 16, 15, 14, 13):
        if length <= len(digits) and _issued("".join(digits[:length])) and _luhn_sum(digits[:length]) % 10 == 0:
            end = _index_of_digit(found, length)
            if not found[end : end + 1].isdigit():
                return end
    return 0


def iban(found: str) -> int:
    """An account number: its country's length, and the remainder 1 modulo 97 (ISO 7064)."""
    length = _IBAN_LENGTHS.get(found[:2])
    characters = [(place, character) for place, character in enumerate(found) if character.isalnum()]
    if length is None or len(characters) < length:
        return 0
    text = "".join(character for _, character in characters[:length])
    end = characters[length - 1][0] + 1
    if found[end : end + 1].isalnum():
        return 0
    return end if int("".join(str(int(character, 36)) for character in text[4:] + text[:4])) % 97 == 1 else 0


def phone(found: str) -> int:
    """A telephone number: a country's calling code and a possible length; in North America its number plan.

    A + before a date or a time stamp is a line that a patch adds.
    """
    if _STAMP.match(found):
        return 0
    digits = "".join(character for character in found if character.isdigit())
    if not found.startswith("+"):
        return len(found) if len(digits) in (10, 11) else 0
    if digits[0] == "1":
        return len(found) if len(digits) == 11 and digits[1] > "1" and digits[4] > "1" else 0
    known = any(digits[:length] in _CALLING_CODES for length in (1, 2, 3))
    return len(found) if known and 9 <= len(digits) <= 15 else 0


def mixed(found: str) -> int:
    """Something made up by a machine or a careful person: letters and digits, no name of a variable, no stand-in."""
    if not value(found) or _DOTTED_NAME.fullmatch(found):
        return 0
    return len(found) if any(map(str.isalpha, found)) and any(map(str.isdigit, found)) else 0


def value(found: str) -> int:
    """Anything but a stand-in such as `string`, `${PASSWORD}`, `****` or `<your key>`."""
    return 0 if _STAND_IN.fullmatch(found.strip()) else len(found)


def no_path(found: str) -> int:
    """As `mixed`, and no path: what stands after `PWD=`, or a file that holds the password."""
    if _PATH.fullmatch(found) and (found.count("/") > 1 or found.islower()):
        return 0
    return mixed(found)


def email(found: str) -> int:
    """An address that could be somebody's: not git's own nor a sender that nobody reads, and no name of a file, a unit or an
    attribute after an @."""
    local, _, domain = found.rpartition("@")
    return 0 if local == "git" or _NOBODY.fullmatch(local) or domain.rpartition(".")[2].lower() in _NO_DOMAINS else len(found)


CHECKS: dict[str, Callable[[str], int]] = {
    "luhn": luhn,
    "iban": iban,
    "phone": phone,
    "email": email,
    "mixed": mixed,
    "no_path": no_path,
    "value": value,
}
"""Word of the rule file -> check."""

NUMERIC = frozenset({"luhn", "iban", "phone"})
"""Those of things that are mostly digits."""


def _luhn_sum(digits: list[str]) -> int:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        number = int(digit) * (1 + place % 2)
        total += number - 9 if number > 9 else number
    return total


def _issued(digits: str) -> bool:
    length, four = len(digits), int(digits[:4])
    if digits[0] == "4":
        return length in (16, 19)  # the old ones of 13 digits are gone; a tenth of all bar codes would look like one
    if digits[:2] in ("34", "37"):
        return length == 15
    if digits[:2] in ("36", "38", "39") or 3000 <= four <= 3059:
        return length == 14
    if 5100 <= four <= 5599 or 2221 <= four <= 2720 or 3528 <= four <= 3589:
        return length == 16
    return length in (16, 19) and (
        four == 6011 or digits[:2] in ("62", "65") or digits[:3] in ("644", "645", "646", "647", "648", "649")
    )


def _index_of_digit(text: str, number: int) -> int:
    """Behind the number-th digit."""
    for place, character in enumerate(text):
        number -= character.isdigit()
        if number == 0:
            return place + 1
    return len(text)
