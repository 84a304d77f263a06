"""Packs a folder that has a .nuspec into a NuGet package: make_nupkg.py FOLDER/X.nuspec TARGET.

A .nupkg is a zip by the Open Packaging Conventions: the files that the .nuspec lists, the .nuspec
without that list, the types of all parts, and the relations that name the .nuspec and the core
properties. NuGet's own packer needs the .NET SDK, which building does not need otherwise. The same
files give the same bytes.
"""

import argparse
import sys
import uuid
import zipfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

NUSPEC = "http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
MANIFEST = "http://schemas.microsoft.com/packaging/2010/07/manifest"
CORE = "http://schemas.openxmlformats.org/package/2006/metadata/core-properties"
CORE_TYPE = "application/vnd.openxmlformats-package.core-properties+xml"
DUBLIN_CORE = "http://purl.org/dc/elements/1.1/"
BEGIN_OF_TIME = (1980, 1, 1, 0, 0, 0)  # of zip files
HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'


def xml_text(root):
    ElementTree.indent(root)
    return HEAD + ElementTree.tostring(root, encoding="unicode") + "\n"


def listed(root, folder):
    """{name in the package: file} of what the .nuspec takes. A file that is not there ends it."""
    files = {}
    for entry in root.iter(f"{{{NUSPEC}}}file"):
        path = folder / entry.get("src")
        if not path.is_file():
            sys.exit(f"{path} is listed and not there")
        files[(Path(entry.get("target")) / path.name).as_posix()] = path
    return files


def content_types(names):
    """The type of every part, by its extension, or by its name where it has none."""
    root = ElementTree.Element("Types", xmlns=TYPES)
    known = {"rels": "application/vnd.openxmlformats-package.relationships+xml",
             "psmdcp": CORE_TYPE}
    for name in sorted(names):
        suffix = Path(name).suffix[1:]
        if suffix:
            known.setdefault(suffix, "application/octet-stream")
    for suffix, kind in sorted(known.items()):
        ElementTree.SubElement(root, "Default", Extension=suffix, ContentType=kind)
    for name in sorted(names):
        if not Path(name).suffix:
            ElementTree.SubElement(root, "Override", PartName=f"/{name}",
                                   ContentType="application/octet-stream")
    return xml_text(root)


def relations(nuspec, properties):
    root = ElementTree.Element("Relationships", xmlns=RELATIONS)
    kinds = {MANIFEST: nuspec, f"{RELATIONS}/metadata/core-properties": properties}
    for number, (kind, target) in enumerate(kinds.items(), 1):
        ElementTree.SubElement(root, "Relationship", Type=kind, Target=f"/{target}",
                               Id=f"R{number}")
    return xml_text(root)


def core_properties(metadata):
    root = ElementTree.Element("coreProperties", {
        "xmlns": CORE, "xmlns:dc": DUBLIN_CORE})
    for name, source in (("dc:creator", "authors"), ("dc:description", "description"),
                         ("dc:identifier", "id"), ("version", "version"),
                         ("keywords", "tags")):
        found = metadata.find(f"{{{NUSPEC}}}{source}")
        if found is not None:
            ElementTree.SubElement(root, name).text = found.text
    return xml_text(root)


def pack(nuspec, target):
    """Writes the package; its names."""
    ElementTree.register_namespace("", NUSPEC)
    root = ElementTree.parse(nuspec).getroot()
    parts = {name: path.read_bytes() for name, path in listed(root, nuspec.parent).items()}
    for files in root.findall(f"{{{NUSPEC}}}files"):
        root.remove(files)
    metadata = root.find(f"{{{NUSPEC}}}metadata")
    identity = f"{nuspec.stem}-{metadata.findtext(f'{{{NUSPEC}}}version')}"
    properties = "package/services/metadata/core-properties/" \
                 f"{uuid.uuid5(uuid.NAMESPACE_URL, identity).hex}.psmdcp"
    parts[nuspec.name] = xml_text(root).encode()
    parts[properties] = core_properties(metadata).encode()
    content = content_types(parts).encode()
    parts["_rels/.rels"] = relations(nuspec.name, properties).encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as package:
        for name, data in {"[Content_Types].xml": content, **parts}.items():
            entry = zipfile.ZipInfo(name, BEGIN_OF_TIME)
            entry.external_attr = 0o644 << 16
            package.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)
    return sorted(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nuspec", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    names = pack(options.nuspec, options.target)
    print(f"{options.target}: {len(names)} parts, {options.target.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
