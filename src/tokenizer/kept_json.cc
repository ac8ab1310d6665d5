#include "tokenizer/kept_json.h"

#include <filesystem>

#include "base/file.h"
#include "tokenizer/hints.h"
#include "tokenizer/open.h"
#include "tokenizer/read_json.h"

namespace weft::tokenizer {
namespace {

using nlohmann::json;

Error Named(const std::string& name, const Error& error) {
    return Error{error.code, name + ": " + error.message};
}

// Keeps only the fields that tokenizers need; the model's writer creates a new config.json.
Result<std::string> ConfigOf(const std::string& text) {
    WEFT_ASSIGN(const json whole, ParseJson(text));
    json kept = json::object();
    for (const char* key : {"model_type", "bos_token_id", "eos_token_id"}) {
        if (whole.is_object() && whole.contains(key)) kept[key] = whole[key];
    }
    return kept.dump();
}

}  // namespace

Result<KeptJson> ReadKeptJson(const std::string& folder) {
    const std::filesystem::path path(folder);
    KeptJson kept;
    WEFT_ASSIGN(kept.json, TokenizerJsonOf(folder));
    for (const char* name : kHintFiles) {
        std::error_code ignored;
        if (!std::filesystem::is_regular_file(path / name, ignored)) continue;
        WEFT_ASSIGN(kept.beside[name], ReadTextFile(path / name, kMostHintBytes));
    }
    const auto config = kept.beside.find("config.json");
    if (config != kept.beside.end()) {
        auto of_tokenizer = ConfigOf(config->second);
        if (!of_tokenizer.ok()) return Named("config.json", of_tokenizer.error());
        config->second = std::move(of_tokenizer).value();
    }
    WEFT_TRY(MakeTokenizer(kept));
    return kept;
}

Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const KeptJson& kept) {
    TokenizerHints hints;
    for (const char* name : kHintFiles) {
        const auto found = kept.beside.find(name);
        if (found == kept.beside.end()) continue;
        const auto parsed = ParseJson(found->second);
        if (!parsed.ok()) return Named(name, parsed.error());
        const Status added = AddHints(name, *parsed, hints);
        if (!added.ok()) return Named(name, added.error());
    }
    auto made = ReadTokenizerJson(kept.json, hints);
    if (!made.ok()) return Named("tokenizer.json", made.error());
    return made;
}

}  // namespace weft::tokenizer
