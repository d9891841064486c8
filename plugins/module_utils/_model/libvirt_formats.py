# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""libvirt's URIs and XML.

It states which URIs are allowed and how the URI of a host is built. It has a safe parser of XML, and parsers of the numbers, sizes, sets and addresses in it.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
import typing as t
import urllib.parse
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from .codec import Json
from .errors import Internal, InvalidArgument

TRANSPORTS = ("ssh", "tls", "tcp")
MEMORY_SCHEMES = ("tcp", "rdma", "unix")

_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9_.-]+)?\]?")
_URI = re.compile(
    r"(?P<driver>[a-z][a-z0-9]*)(\+(?P<transport>[a-z0-9]*))?://"
    r"((?P<user>[^/?#@]*)@)?(?P<host>\[[^\]/?#@]*\]|[^/?#@:\[\]]*)(:[0-9]{1,5})?"
    r"(?P<path>/[^\s'\"\\<>`?#]*)?(\?(?P<query>[^\s'\"\\<>`#]*))?"
)
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_TRANSPORTS_OF_URIS = (None, "unix", "libssh", "libssh2", *TRANSPORTS)
# Not "command" and "netcat", which name programs, nor "name", which has the daemon open another URI.
_PARAMETERS = frozenset(
    ["keyfile", "known_hosts", "known_hosts_verify", "mode", "no_sanity", "no_tty", "no_verify", "pkipath", "proxy", "socket", "sshauth", "tls_priority"],
)

_LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback")


def check_address(address: str) -> str:
    """Return the host name or IP address if a URI can contain it, otherwise raise L(InvalidArgument)."""
    if not _is_address(address or ""):
        raise InvalidArgument(
            f"{address!r} is neither a host name nor an IP address.",
            "Name a host of the inventory, or give an address that libvirt can connect to.",
        )
    return address


def _is_address(text: str) -> bool:
    """Whether the text is a host name or IP address; an IPv6 address may be in brackets."""
    if not _ADDRESS.fullmatch(text) or text.startswith("[") != text.endswith("]"):
        return False
    return ":" not in text or is_ipv6(text.strip("[]").partition("%")[0])


def parse_ip(text: str) -> t.Union[ipaddress.IPv4Address, ipaddress.IPv6Address, None]:
    """Return an IP address without brackets; null if the text is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_ipv6(text: str) -> bool:
    """Whether the text is an IPv6 address without brackets."""
    return isinstance(parse_ip(text), ipaddress.IPv6Address)


def remote_uri(address: str, transport: str) -> str:
    """Return the system URI of the QEMU driver at an address, e.g. C(qemu+tcp://kvm2/system)."""
    check_address(address)
    host = f"[{address}]" if ":" in address and not address.startswith("[") else address
    # Without no_tty, ssh would ask for a password if a key is missing, and wait forever.
    options = "?no_tty=1" if transport == "ssh" else ""
    return f"qemu+{transport}://{host}/system{options}"


def is_loopback(address: str) -> bool:
    """Whether a host name or IP address, perhaps in brackets, is that of every host itself."""
    name = address.strip("[]").lower()
    ip = parse_ip(name.partition("%")[0])
    if ip is None:
        return name in _LOOPBACK_NAMES or name.endswith(".localhost")
    return ip.is_loopback or ip.is_unspecified


def is_local(uri: str) -> bool:
    """Whether the URI is that of the machine it is opened on: no host, and no transport but a unix socket."""
    parts = urllib.parse.urlsplit(uri)
    transport = parts.scheme.partition("+")[2]
    return not parts.netloc and transport in ("", "unix")


def check_uri(uri: Json, option: str) -> str:
    """Return the URI if it is one that makes libvirt run nothing but its own transports, else raise L(InvalidArgument) naming the option."""
    parts = _URI.fullmatch(uri) if isinstance(uri, str) else None
    if parts is None:
        raise InvalidArgument(f"{option} is {_mask_password(uri)}, which is not a libvirt URI.", "Give one like qemu:///system or qemu+ssh://kvm2/system.")
    problem = _find_problem(parts)
    if problem:
        raise InvalidArgument(f"{option} is {_mask_password(uri)}: {problem}.", "Give one like qemu:///system or qemu+ssh://kvm2/system.")
    return str(uri)


def _find_problem(parts: t.Match[str]) -> str:
    if parts["transport"] not in _TRANSPORTS_OF_URIS:
        return f"the transport {parts['transport']!r} is not one of {', '.join(filter(None, _TRANSPORTS_OF_URIS))}"
    if parts["host"] and not _is_address(parts["host"]):
        return f"{parts['host']!r} is neither a host name nor an IP address"
    if parts["user"] is not None and not _USER.fullmatch(parts["user"]):
        return "the part before the @ is not a user name (a password is not allowed there)"
    # Libvirt separates parameters at both characters, decodes their names, and ignores case.
    names = [parameter.partition("=")[0] for parameter in re.split("[&;]", parts["query"] or "") if parameter]
    strange = [name for name in names if name not in _PARAMETERS]
    return f"the parameter {strange[0]!r} is not allowed, only {', '.join(sorted(_PARAMETERS))} are" if strange else ""


def _mask_password(uri: Json) -> str:
    """Return the URI for a message, without a password."""
    return re.sub(r"://([^/?#@:]*):[^/?#]*@", r"://\1:***@", repr(uri))


def check_migrate_uri(uri: Json) -> str:
    """Return the URI if memory can be streamed to it, else raise L(InvalidArgument)."""
    if urllib.parse.urlsplit(check_uri(uri, "migrate_uri")).scheme not in MEMORY_SCHEMES:
        raise InvalidArgument(f"migrate_uri is {uri!r}, which is not a URI to which memory can be streamed.", "Give one like tcp://10.0.0.2.")
    return str(uri)


# The longest string that libvirt's protocol carries (REMOTE_STRING_MAX).
MAX_CHARACTERS = 4 * 1024**2
# Libvirt's own parser accepts no deeper nesting. Python's writer is recursive, and would fail.
MAX_LEVELS = 256


class NotXml(Exception):
    """The text is invalid. The text of the exception states the reason, as the end of a sentence."""


class _NoDoctype(ElementTree.TreeBuilder):
    def doctype(self, *_declared: t.Any) -> t.NoReturn:
        raise NotXml("it declares a document type, which libvirt never does")


def parse_xml(text: str) -> ElementTree.Element:
    """Return the root element. Raises L(NotXml)."""
    if len(text) > MAX_CHARACTERS:
        raise NotXml(f"it is longer than {MAX_CHARACTERS} characters")
    # A comment or CDATA may contain the same words; only the slower parser can distinguish them.
    parser = ElementTree.XMLParser(target=_NoDoctype()) if "<!DOCTYPE" in text else None
    try:
        root = ElementTree.fromstring(text, parser)
    except (ElementTree.ParseError, ValueError) as error:
        raise NotXml(f"it is not XML: {error}") from error
    _check_depth(root)
    return root


def _check_depth(root: ElementTree.Element) -> None:
    level, depth = [root], 1
    while level := [child for element in level for child in element]:
        depth += 1
        if depth > MAX_LEVELS:
            raise NotXml(f"it is nested more than {MAX_LEVELS} times")


def parse_libvirt_xml(text: str, what: str) -> ElementTree.Element:
    """Return the root element of what libvirt gave, e.g. as C(a domain definition). Raises L(Internal)."""
    try:
        return parse_xml(text)
    except NotXml as error:
        raise Internal(f"libvirt gave {what} that cannot be read: {error}.") from error


MIB = 1024**2
UNITS = {"b": 1, "bytes": 1, "KB": 1000, "k": 1024, "KiB": 1024, "MB": 1000**2, "M": MIB, "MiB": MIB, "GB": 1000**3, "G": 1024**3, "GiB": 1024**3,
         "TB": 1000**4, "T": 1024**4, "TiB": 1024**4}  # fmt: skip

# The number of CPUs that libvirt can name (VIR_DOMAIN_CPUMASK_LEN), and of vCPUs. Sizes have 64 bits.
_MOST_CPUS = 16384
_SIZE_DIGITS = 20


def escape_text(text: str) -> str:
    """Return the text as it is written between the tags of an XML document. The standard library's function would import an HTTP client."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def clean_path(path: str) -> str:
    """Return an absolute path in the one form in which it can be compared with others; any other text as it is.

    The path of a file may be written as C(file:), as in the header of an image.
    """
    bare = path[len("file:") :] if path.startswith("file:/") else path
    return posixpath.normpath(f"/{bare.lstrip('/')}") if bare.startswith("/") else path


def read_vlan(parent: ElementTree.Element) -> t.Optional[str]:
    """Return the VLAN tags of an interface, a network or a port group as a text, e.g. C(42), or C(trunk 42 untagged, 47); null for none."""
    vlan = parent.find("vlan")
    tags = [] if vlan is None else [(parse_number(tag.get("id")), tag.get("nativeMode", "")) for tag in vlan.findall("tag")]
    if vlan is None or not tags:
        return None
    listed = ", ".join(f"{number} {mode}".strip() for number, mode in sorted(tags))
    return f"trunk {listed}" if len(tags) > 1 or vlan.get("trunk") == "yes" else listed


def parse_ids(text: t.Optional[str]) -> t.List[int]:
    """Return the numbers of a set like C(0-3,^2,8), sorted; an empty list if it is invalid."""
    chosen: t.Set[int] = set()
    excluded: t.Set[int] = set()
    for part in (text or "").replace(" ", "").split(","):
        first, _dash, last = part.lstrip("^").partition("-")
        if _is_id(first) and _is_id(last or first):
            (excluded if part.startswith("^") else chosen).update(range(int(first), int(last or first) + 1))
    return sorted(chosen - excluded)


def _is_id(text: str) -> bool:
    """Whether that can be the number of a CPU or a NUMA node. A range up to a larger number would take too much memory."""
    return text.isdecimal() and len(text) <= _SIZE_DIGITS and int(text) < _MOST_CPUS


def format_ids(ids: t.Iterable[int]) -> str:
    """Return numbers as libvirt writes a set of them, e.g. C(0-3,8)."""
    runs: t.List[t.List[int]] = []
    for number in sorted(ids):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def parse_number(text: t.Optional[str], default: int = 0) -> int:
    """Return a number in a definition. Raises L(Internal) if it is invalid, or has more digits than libvirt writes."""
    given = (text or "").strip()
    if not given:
        return default
    if not given.isdecimal() or len(given) > _SIZE_DIGITS:
        raise Internal(f"{given[:40]!r} was found where libvirt writes a number.")
    return int(given)


def parse_vcpu_count(text: t.Optional[str], default: int = 0) -> int:
    """Return the number of vCPUs in a definition. Raises L(Internal) if it is invalid."""
    number = parse_number(text, default)
    if number > _MOST_CPUS:
        raise Internal(f"A definition says {number} vCPUs: no hypervisor has more than {_MOST_CPUS}.")
    return number


def parse_size(number: t.Optional[str], unit: t.Optional[str]) -> int:
    """Return a size in bytes; the default unit is KiB. Raises L(Internal) if it is not a number."""
    return parse_number(number) * UNITS.get(unit or "KiB", 1024)


def round_up_to_mib(size: int) -> int:
    """Return bytes as MiB, rounded up."""
    return -(-size // MIB)


_NUMBER_CHARACTERS = 18


def format_pci_address(element: t.Optional[Element]) -> str:
    """Return an address element as C(0000:06:12.0)."""
    if element is None:
        return ""
    domain, bus, slot, function = (parse_device_number(element.get(part)) for part in ("domain", "bus", "slot", "function"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def parse_device_number(text: t.Optional[str]) -> int:
    """Return a number, decimal or with C(0x); an invalid one is 0."""
    given = (text or "0")[:_NUMBER_CHARACTERS]
    try:
        return int(given, 0)
    except ValueError:
        return int(given) if given.isdecimal() else 0
