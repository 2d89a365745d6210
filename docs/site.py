"""Extensions of mkdocs and griffe: pages from outside docs/, signatures of compiled classes, links in docstrings."""

import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent

# Pages that stand outside docs/, and their names in the site.
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and pictures that stand outside docs/."""
    pictures = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "bench/figures").glob("*.png")}
    for name, path in {**{PAGES[name]: ROOT / name for name in PAGES}, **pictures}.items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to where their targets are in the site."""
    prefix = "" if page.file.src_uri in PAGES.values() else "../"
    for name, target in PAGES.items():
        markdown = markdown.replace(f"]({prefix}{name}", f"]({target}")
    return markdown.replace(f"]({prefix}bench/figures/", "](bench/figures/").replace("](docs/", "](")


class CompiledClasses(griffe.Extension):
    """Gives a compiled class the signature in its stub, which is that of `__init__` or of `__new__`."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Drop the `__init__` of compiled code; give the stub of a class that has `__new__` alone one."""
        suffix = cls.filepath.suffix if isinstance(cls.filepath, Path) else ""
        if suffix not in (".py", ".pyi"):
            cls.members.pop("__init__", None)
        new = cls.members.get("__new__")
        if suffix == ".pyi" and "__init__" not in cls.members and isinstance(new, griffe.Function):
            init = griffe.Function("__init__", parameters=new.parameters, lineno=new.lineno, endlineno=new.endlineno)
            cls.set_member("__init__", init)


def sections() -> list[tuple[str, str, str]]:
    """Return the title, the address and the Python code of every section of the pages in docs/."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*.md")):
        title, heading = "", ""
        blocks_and_headings = r"^```(\w*)\n(.*?)^```$|^#+ ([^\n]+)$"
        for language, code, words in re.findall(
            blocks_and_headings, path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            title, heading = title or words, words or heading
            anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            if language == "python":
                found.append((f"{title}: {heading}", f"../../{path.stem}/#{anchor}", code))
    return found


class References(griffe.Extension):
    """Links in docstrings: from names between backticks, and from a class or function to pages that show it in use."""

    def __init__(self) -> None:
        self.public: dict[str, str] = {}
        self.sections = sections()

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Collect the public names: classes and functions by their name, all by room and name."""
        if pkg["kernels._ridge.Ridge"].docstring is None:
            raise RuntimeError(f"{pkg.filepath}: expected the compiled package, found its sources alone")
        for room in [pkg, *(module for module in pkg.modules.values() if module.exports)]:
            for export in room.exports or []:
                name = str(export)
                self.public[f"{room.name}.{name}"] = path = f"{room.path}.{name}"
                if not name.islower():
                    self.public.setdefault(name, path)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Turn the names in one docstring into links."""
        if obj.docstring is None:
            return
        scopes = []
        scope: Any = obj
        while scope is not None:
            scopes.append(scope)
            scope = scope.parent

        def link(match: re.Match[str]) -> str:
            name = match[1]
            first, _, rest = name.partition(".")
            inside = [s.path for s in scopes if first in s.members and not s.members[first].is_alias]
            target = f"{inside[0]}.{name}" if inside else self.public.get(name)
            if target is None and first in self.public and rest:
                target = f"{self.public[first]}.{rest}"
            if target is None or target == obj.path:
                return match[0]
            return f'<autoref optional identifier="{target}"><code>{name}</code></autoref>'

        text = re.sub(r"(?<![`\w])`([A-Za-z]\w*(?:\.\w+)*)`(?!`)", link, obj.docstring.value)
        text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
        if (obj.is_class or obj.is_function) and not re.search(r"^>>> ", text, re.MULTILINE):
            text += self.shown(obj)
        obj.docstring.value = text

    def shown(self, obj: griffe.Object) -> str:
        """Return links to the first sections that show a public class or function in use, as a section "Examples"."""
        if not any(path.rpartition(".")[2] == obj.name for path in self.public.values()) or obj.parent is None:
            return ""
        if not obj.parent.is_module:
            return ""
        pattern = re.compile(rf"\b{obj.name}\b")
        found = {address: title for title, address, code in self.sections if pattern.search(code)}
        links = [f'<a href="{address}">{title}</a>' for address, title in found.items()]
        return f"\n\nExamples\n--------\nIn use: {'; '.join(links[:3])}." if links else ""
