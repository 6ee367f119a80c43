"""Markdown, mathematics and code as safe HTML, and the templates of the report."""

import base64
import hashlib
import re
from functools import cache, lru_cache

from .core import package_dir, require, version

_MATH = """math mrow mi mo mn mtext mspace mfrac msup msub msubsup mover munder munderover msqrt mroot
    mtable mtr mtd mstyle mpadded mphantom mmultiscripts mprescripts none""".split()
_ATTRIBUTES = """xmlns display displaystyle scriptlevel mathvariant stretchy fence form accent movablelimits minsize
    maxsize width height lspace rspace linethickness columnalign rowspacing""".split()


@lru_cache(2**12)
def mathml(tex: str, display: bool = False) -> str:
    """A formula, without dollar signs, as MathML, inline or on a line of its own.

    What cannot be translated is its escaped source.
    """
    from markupsafe import Markup

    tex = " ".join(tex.split())
    try:
        from bleach import clean
        from latex2mathml.converter import convert

        html = convert(tex, display="block" if display else "inline")
        return Markup(clean(html, _MATH, _ATTRIBUTES, strip=True))
    except Exception:  # faults of the source, or no converter
        return Markup('<code class="tex">{}</code>').format(tex)


def anchor_of(html: str) -> str:
    "Name by which a link finds a heading"
    return (
        re.sub(r"\W+", "-", re.sub("<[^>]+>", "", html)).strip("-").lower()
        or "part"
    )


@cache
def _renderer():
    "A renderer of Markdown that lets no HTML through"
    import mistune
    from markupsafe import escape

    class Safe(mistune.HTMLRenderer):
        def block_math(self, text: str) -> str:
            return f'<div class="math">{mathml(text, True)}</div>\n'

        def inline_math(self, text: str) -> str:
            return mathml(text)

        def block_html(self, html: str) -> str:
            return re.sub(
                "&lt;(/?(?:details|summary))&gt;", r"<\1>", str(escape(html))
            )

        def image(self, text: str, url: str, title: str | None = None) -> str:
            return f"<em>{escape(text)}</em>"

        def link(self, text: str, url: str, title: str | None = None) -> str:
            if not re.match(r"https?://|#", url):
                return text
            return f'<a href="{escape(url)}" rel="noreferrer">{text}</a>'

        def heading(self, text: str, level: int, **kw) -> str:
            return f'<h{level} id="{anchor_of(text)}">{text}</h{level}>\n'

    return mistune.create_markdown(
        renderer=Safe(), plugins=["table", "math", "strikethrough"]
    )


@lru_cache(2**12)
def markdown_html(source: str, inline: bool = False) -> str:
    "Markdown with formulas as HTML; inline: one line, without a paragraph around it"
    from markupsafe import Markup

    source = re.sub(
        r"<!--[\w.-]+-->", "", source
    )  # which fact a number is, see `run.facts`
    own_line = r"(?m)^[ \t]*\$\$((?:(?!\$\$)[\s\S])++)\$\$[ \t]*$"
    source = re.sub(own_line, r"\n$$\n\1\n$$\n", source)
    html = str(_renderer()(source))
    return Markup(re.sub("</?p>", "", html).strip() if inline else html)


@lru_cache(2**12)
def code_html(source: str) -> str:
    "Python as HTML, without the directives of nbdev"
    from markupsafe import Markup
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    source = re.sub(r"^#\|.*\n?", "", source, flags=re.M)
    if not source.strip():
        return ""
    code = Markup(highlight(source, PythonLexer(), HtmlFormatter(nowrap=True)))
    return Markup(
        '<pre class="code" tabindex="0"><code>{}</code></pre>'
    ).format(code)


DIFFER = "runs differ"
# verdict -> kind of its mark; other words are 'none'
MARKS = {
    "holds": "yes",
    "does not hold": "no",
    "too small to matter": "small",
    "models differ": "mixed",
}
MARKS |= {
    "open": "open",
    "not asked": "gone",
    "not testable here": "none",
    DIFFER: "differ",
}


# control signs but tab and ends of lines: no page and no spreadsheet can show them
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def visible(text: str) -> str:
    "A text whose control signs are the pictures that Unicode has of them, as ␀ and ␛; of the same kind"
    if not _UNSEEN.search(text):
        return text

    def picture(match: re.Match) -> str:
        code = ord(match[0])
        return "\u2421" if code == 127 else chr(0x2400 + code)

    return type(text)(_UNSEEN.sub(picture, text))


@cache
def templates():
    "The environment of the templates"
    require("jinja2", "report")
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    env = Environment(
        loader=FileSystemLoader(package_dir() / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda x: visible(x) if isinstance(x, str) else x,
    )
    env.filters["markdown"] = markdown_html
    env.filters["code"] = code_html
    env.filters["anchor"] = anchor_of
    env.filters["mark"] = lambda verdict: MARKS.get(verdict, "none")
    env.filters["checksum"] = lambda t: base64.b64encode(
        hashlib.sha256(t.encode()).digest()
    ).decode()
    env.globals["version"] = version()
    env.globals["marks"] = MARKS
    for kind in ("css", "js"):
        text = (package_dir() / f"report.{kind}").read_text(encoding="utf-8")
        env.globals[kind] = Markup(text)
    return env
