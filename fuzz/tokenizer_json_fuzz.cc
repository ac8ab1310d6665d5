// Fuzzes tokenizer.json: the file is the input up to a line "---", the rest is text to encode.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "tokenizer/read_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    using namespace weft::tokenizer;
    const std::string_view input(reinterpret_cast<const char*>(bytes), size);
    const size_t cut = input.find("\n---\n");
    const auto tokenizer = ReadTokenizerJson(input.substr(0, cut), {});
    if (!tokenizer.ok()) {
        WEFT_CHECK(!tokenizer.error().message.empty());
        return 0;
    }
    const std::string_view text = cut == input.npos ? "ab c\xFF 12" : input.substr(cut + 5);
    for (const bool parse : {false, true}) {
        const auto ids = (*tokenizer)->Encode(text, {.parse_special = parse});
        for (const int32_t id : ids) WEFT_CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
        (*tokenizer)->Decode(ids);
    }
    return 0;
}
