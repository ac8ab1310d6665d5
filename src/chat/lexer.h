// A template's text as tokens, as jinja2 cuts it with trim_blocks and lstrip_blocks on (which is
// how chat templates are rendered): the line end after a block tag goes, blanks before a block tag
// at the begin of a line go, and "-" inside a tag takes all white space on its side.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::chat::jinja {

enum class TokenKind {
    kData,           // text outside of tags
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kName,
    kString,  // with its escapes resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,
};

struct Token {
    TokenKind kind;
    std::string text;
    int line;
};

// The tokens, kEnd last. Throws Failure (kCorrupt) for text that is none.
std::vector<Token> Lex(std::string_view source);

}  // namespace weft::chat::jinja
