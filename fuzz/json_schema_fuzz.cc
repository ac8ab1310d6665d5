// Fuzzes grammars from JSON schemas. The bytes after a line "---" choose the tokens that follow a
// compiled grammar; a complete text must be JSON.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/json_schema.h"
#include "support/grammar_probe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    using namespace weft::grammar;
    const std::string_view input(reinterpret_cast<const char*>(bytes), size);
    const size_t cut = input.find("\n---\n");
    // A schema that the strict compiler accepts is kept completely by the lenient compiler, too.
    std::vector<std::string> left_out;
    const auto strict = GrammarFromJsonSchemaText(input.substr(0, cut));
    const auto grammar =
        GrammarFromJsonSchemaText(input.substr(0, cut), {.lenient = true, .left_out = &left_out});
    WEFT_CHECK(strict.ok() == (grammar.ok() && left_out.empty()));
    if (grammar.ok()) {
        ProbeGrammar(*grammar, cut == input.npos ? "abcdefgh" : input.substr(cut + 5));
        const auto blank = Matches(**grammar, "");
        WEFT_CHECK(!blank.ok() || !*blank);
    } else {
        WEFT_CHECK(!grammar.error().message.empty());
    }
    return 0;
}
