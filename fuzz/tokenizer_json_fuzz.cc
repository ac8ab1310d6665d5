// Fuzzes tokenizer.json: the file is the input up to a line "---", the rest is text to encode. The
// part before a line "+++" is the tokenizer_config.json that a GGUF file stores with it. A file
// with a line "===" is a vocab.json and a merges.txt.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "tokenizer/kept_json.h"
#include "tokenizer/read_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    using namespace weft::tokenizer;
    std::string_view input(reinterpret_cast<const char*>(bytes), size);
    KeptJson kept;
    if (const size_t config = input.find("\n+++\n"); config != input.npos) {
        kept.beside["tokenizer_config.json"] = input.substr(0, config);
        input.remove_prefix(config + 5);
    }
    const size_t cut = input.find("\n---\n");
    kept.json = input.substr(0, cut);
    if (const size_t merges = kept.json.find("\n===\n"); merges != kept.json.npos) {
        TokenizerHints hints;
        hints.tokenizer_class = "GPT2Tokenizer";
        const std::string_view both = kept.json;
        const auto joined = JoinVocabulary(both.substr(0, merges), both.substr(merges + 5), hints);
        if (!joined.ok()) return 0;
        kept.json = std::string(*joined);
    }
    const auto tokenizer = MakeTokenizer(kept);
    if (!tokenizer.ok()) {
        WEFT_CHECK(!tokenizer.error().message.empty());
        return 0;
    }
    const std::string_view text = cut == input.npos ? "ab c\xFF 12" : input.substr(cut + 5);
    for (const bool parse : {false, true}) {
        const auto ids = (*tokenizer)->Encode(text, {.parse_special = parse});
        for (const int32_t id : ids) WEFT_CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
        // Whatever steps a file has behind one another.
        WEFT_CHECK(ids.size() <= 64 * text.size() + (size_t{1} << 18));
        WEFT_CHECK((*tokenizer)->Decode(ids).size() <= ids.size() * (1024 + 16 * size));
    }
    return 0;
}
