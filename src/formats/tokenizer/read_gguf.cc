#include "formats/tokenizer/read_gguf.h"

#include <limits>
#include <string>

#include "formats/tokenizer/open.h"

namespace weft::formats {
namespace {

std::string Key(std::string_view name) {
    return "tokenizer.ggml." + std::string(name);
}

std::vector<std::string> Copy(const std::vector<std::string_view>& views) {
    return {views.begin(), views.end()};
}

Status ReadArrays(const Metadata& meta, TokenizerData& data) {
    WEFT_ASSIGN(const std::vector<std::string_view> tokens, meta.Strings(Key("tokens")));
    data.tokens = Copy(tokens);
    if (data.model == "gpt2") {
        WEFT_ASSIGN(const std::vector<std::string_view> merges, meta.Strings(Key("merges")));
        data.merges = Copy(merges);
    }
    if (data.model == "llama" || meta.Has(Key("scores"))) {
        WEFT_ASSIGN(data.scores, meta.Floats(Key("scores")));
    }
    if (!meta.Has(Key("token_type"))) return {};
    WEFT_ASSIGN(const std::vector<int64_t> types, meta.Ints(Key("token_type")));
    data.types.reserve(types.size());
    for (const int64_t type : types) {
        // What no int32 holds is no type either: 0 is refused later, with its place.
        data.types.push_back(type >= 0 && type <= 6 ? static_cast<int32_t>(type) : 0);
    }
    return {};
}

Status ReadIds(const Metadata& meta, TokenizerData& data) {
    const bool spm = data.model == "llama";
    const struct {
        const char* name;
        int32_t* id;
        int32_t fallback;
    } named[] = {
        {"bos_token_id", &data.bos, spm ? 1 : -1},
        {"eos_token_id", &data.eos, spm ? 2 : -1},
        {"eot_token_id", &data.eot, -1},
        {"eom_token_id", &data.eom, -1},
        {"unknown_token_id", &data.unk, spm ? 0 : -1},
        {"padding_token_id", &data.pad, -1},
    };
    for (const auto& [name, id, fallback] : named) {
        const auto most = static_cast<int64_t>(data.tokens.size()) - 1;
        const bool fits = fallback <= most;
        WEFT_ASSIGN(const int64_t value, meta.IntOr(Key(name), 0, most, fits ? fallback : -1));
        *id = static_cast<int32_t>(value);
    }
    WEFT_ASSIGN(data.add_bos, meta.BoolOr(Key("add_bos_token"),
                                          spm || (data.pre == "llama-bpe" && data.bos >= 0)));
    WEFT_ASSIGN(data.add_eos, meta.BoolOr(Key("add_eos_token"), false));
    WEFT_ASSIGN(data.add_space_prefix, meta.BoolOr(Key("add_space_prefix"), spm));
    return {};
}

}  // namespace

Result<TokenizerData> ReadTokenizer(const Metadata& meta) {
    TokenizerData data;
    WEFT_ASSIGN(data.model, meta.String(Key("model")));
    if (data.model != "gpt2" && data.model != "llama") return data;  // Make refuses it by name
    WEFT_ASSIGN(data.pre, meta.StringOr(Key("pre"), ""));
    WEFT_TRY(ReadArrays(meta, data));
    WEFT_TRY(ReadIds(meta, data));
    return data;
}

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const ModelSource& source) {
    if (!source.folder().empty()) return OpenTokenizerFolder(source.folder());
    WEFT_ASSIGN(TokenizerData data, ReadTokenizer(source.meta()));
    auto made = Tokenizer::Make(std::move(data));
    if (made.ok()) return made;
    return Error{made.error().code, source.name() + ": " + made.error().message};
}

}  // namespace weft::formats
