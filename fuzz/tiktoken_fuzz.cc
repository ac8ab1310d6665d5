// Fuzzes tiktoken files and tekken.json: the input has one character for the family, the file up to
// an empty line, and the text to encode.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "base/check.h"
#include "tokenizer/read_tekken.h"
#include "tokenizer/read_tiktoken.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    using namespace weft::tokenizer;
    std::string_view input(reinterpret_cast<const char*>(bytes), size);
    TokenizerHints hints;
    const char* types[] = {"kimi_k2", "llama", "qwen2", "gpt_oss", "", "other", "tekken"};
    if (!input.empty()) {
        hints.model_type = types[static_cast<uint8_t>(input[0]) % std::size(types)];
        input.remove_prefix(1);
    }
    const size_t cut = input.find("\n\n");
    const bool tekken = hints.model_type == "tekken";
    const auto tokenizer = tekken ? ReadTekken(input.substr(0, cut), hints)
                                  : ReadTiktoken(input.substr(0, cut), hints);
    if (!tokenizer.ok()) {
        WEFT_CHECK(!tokenizer.error().message.empty());
        return 0;
    }
    const std::string_view text = cut == input.npos ? "ab c" : input.substr(cut + 2);
    const auto ids = (*tokenizer)->Encode(text, {.parse_special = true});
    for (const int32_t id : ids) WEFT_CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
    (*tokenizer)->Decode(ids);
    return 0;
}
