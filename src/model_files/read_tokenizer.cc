#include "model_files/read_tokenizer.h"

#include <algorithm>
#include <string>

#include "base/log.h"
#include "model_files/pre_tokenizer.h"
#include "tokenizer/families.h"
#include "tokenizer/hints.h"
#include "tokenizer/open.h"

namespace weft::model_files {
namespace {

std::string Key(std::string_view name) {
    return "tokenizer.ggml." + std::string(name);
}

std::vector<std::string> Copy(const std::vector<std::string_view>& views) {
    return {views.begin(), views.end()};
}

// Whether the vocabulary needs a pre-tokenizer, but the file has none. Ollama's converter writes
// "default" for unknown ones; unlike llama.cpp's, it stores scores for byte-level BPE.
bool LacksPre(const Metadata& meta) {
    const auto model = meta.StringOr(Key("model"), "");
    const auto pre = meta.StringOr(Key("pre"), "");
    if (!model.ok() || *model != "gpt2" || !pre.ok()) return false;
    return pre->empty() || (*pre == "default" && meta.Has(Key("scores")));
}

Status ReadArrays(const Metadata& meta, tokenizer::TokenizerData& data) {
    WEFT_ASSIGN(const std::vector<std::string_view> tokens, meta.Strings(Key("tokens")));
    data.tokens = Copy(tokens);
    // Some converters write Kimi-K2 files without merges; ids are then the ranks, as in tiktoken.
    const bool merged = data.model == "gpt2" || data.model == "gemma4";
    if (merged && (data.pre != "kimi-k2" || meta.Has(Key("merges")))) {
        WEFT_ASSIGN(const std::vector<std::string_view> merges, meta.Strings(Key("merges")));
        data.merges = Copy(merges);
    }
    if (data.model == "llama" || data.model == "t5" || meta.Has(Key("scores"))) {
        WEFT_ASSIGN(data.scores, meta.Floats(Key("scores")));
    }
    if (!meta.Has(Key("token_type"))) return {};
    WEFT_ASSIGN(const std::vector<int64_t> types, meta.Ints(Key("token_type")));
    data.types.reserve(types.size());
    for (const int64_t type : types) {
        // Invalid types become 0, which is refused later, with its index.
        data.types.push_back(type >= 0 && type <= 6 ? static_cast<int32_t>(type) : 0);
    }
    return {};
}

// The id of a special token, or `fallback`. Files hold ids beyond the vocabulary for tokens that
// the model lacks: the number of tokens for padding, or -1. llama.cpp ignores them, too.
Result<int32_t> ReadId(const Metadata& meta, const char* name, const tokenizer::TokenizerData& data,
                       int32_t fallback) {
    constexpr int64_t kMost = int64_t{1} << 32;
    const auto count = static_cast<int64_t>(data.tokens.size());
    const int64_t usual = fallback < count ? fallback : -1;
    WEFT_ASSIGN(const int64_t id, meta.IntOr(Key(name), -kMost, kMost, usual));
    if (id >= -1 && id < count) return static_cast<int32_t>(id < 0 ? usual : id);
    Log(LogLevel::kWarning, "metadata key '{}' is {}, but the vocabulary has {} tokens: ignored",
        Key(name), id, count);
    return static_cast<int32_t>(usual);
}

Status ReadIds(const Metadata& meta, tokenizer::TokenizerData& data) {
    const bool spm = data.model == "llama", unigram = data.model == "t5";
    const bool gemma = data.model == "gemma4";
    const struct {
        const char* name;
        int32_t* id;
        int32_t fallback;
    } named[] = {
        {"bos_token_id", &data.bos, spm ? 1 : -1},
        {"eos_token_id", &data.eos,
         spm       ? 2
         : unigram ? 1
                   : -1},
        {"eot_token_id", &data.eot, -1},
        {"eom_token_id", &data.eom, -1},
        {"unknown_token_id", &data.unk,
         spm       ? 0
         : unigram ? 2
                   : -1},
        {"padding_token_id", &data.pad, -1},
    };
    for (const auto& [name, id, fallback] : named) {
        WEFT_ASSIGN(*id, ReadId(meta, name, data, fallback));
    }
    const bool family = data.model == "gpt2" && tokenizer::TraitsOf(data.pre).adds_bos;
    WEFT_ASSIGN(data.add_bos, meta.BoolOr(Key("add_bos_token"), spm || (family && data.bos >= 0)));
    data.add_bos |= gemma && data.bos >= 0;  // files that have false here are wrong
    WEFT_ASSIGN(data.add_eos, meta.BoolOr(Key("add_eos_token"), unigram));
    // As llama-server writes pairs of a reranker.
    WEFT_ASSIGN(const bool separates, meta.BoolOr(Key("add_sep_token"), false));
    WEFT_ASSIGN(const int32_t separator,
                ReadId(meta, "seperator_token_id", data, data.eos));  // GGUF's spelling
    if (data.model == "bert") {  // [CLS] a [SEP], or [CLS] a [SEP] b [SEP]
        WEFT_ASSIGN(const int32_t begin, ReadId(meta, "cls_token_id", data, data.bos));
        if (begin < 0 || separator < 0) {
            return MakeError(ErrorCode::kCorrupt, "metadata keys '{}' and '{}' are missing",
                             Key("cls_token_id"), Key("seperator_token_id"));
        }
        data.bos = begin;
        data.eos = separator;
        data.add_bos = data.add_eos = data.add_space_prefix = true;
        data.middle.push_back(data.eos);
        return {};
    }
    if (data.add_eos && data.eos >= 0) data.middle.push_back(data.eos);
    if (separates && separator >= 0) data.middle.push_back(separator);
    WEFT_ASSIGN(data.add_space_prefix, meta.BoolOr(Key("add_space_prefix"), spm || unigram));
    return {};
}

// Files of other converters do not state that the markers of Phi-3's vocabulary include the white
// space behind them. llama.cpp has this rule, too.
void MarkPhi3(tokenizer::TokenizerData& data) {
    constexpr std::string_view kOthers[] = {"<unk>", "<s>", "<|endoftext|>"};
    const bool phi = data.model == "llama" &&
                     std::ranges::find(data.tokens, "<|placeholder1|>") != data.tokens.end();
    for (size_t id = 0; phi && id < std::min(data.tokens.size(), data.types.size()); ++id) {
        const auto type = static_cast<tokenizer::TokenType>(data.types[id]);
        const bool marker =
            type == tokenizer::TokenType::kControl || type == tokenizer::TokenType::kUserDefined;
        if (marker && std::ranges::find(kOthers, data.tokens[id]) == std::end(kOthers)) {
            data.rstrip.push_back(static_cast<int32_t>(id));
        }
    }
}

// Ids out of range mark no token.
Status ReadFlags(const Metadata& meta, tokenizer::TokenizerData& data) {
    const auto count = static_cast<int64_t>(data.tokens.size());
    bool has = false;
    for (const auto& [key, ids] : kFlagKeys) {
        if (!meta.Has(key)) continue;
        has = true;
        WEFT_ASSIGN(const std::vector<int64_t> read, meta.Ints(key));
        for (const int64_t id : read) {
            if (id >= 0 && id < count) (data.*ids).push_back(static_cast<int32_t>(id));
        }
    }
    if (!has) MarkPhi3(data);
    return {};
}

Status ReadUnigram(const Metadata& meta, tokenizer::TokenizerData& data) {
    WEFT_ASSIGN(data.remove_extra_spaces, meta.BoolOr(Key("remove_extra_whitespaces"), false));
    const std::string key = Key("precompiled_charsmap");
    if (!meta.Has(key)) return {};
    WEFT_ASSIGN(const std::vector<int64_t> bytes, meta.Ints(key));
    data.charsmap.reserve(bytes.size());
    for (const int64_t byte : bytes) data.charsmap += static_cast<char>(byte);
    return {};
}

// A metadata string with a file's contents.
Result<std::string> KeptFile(const Metadata& meta, const std::string& key, uint64_t most_bytes) {
    const MetaEntry* entry = meta.Find(key);
    if (entry != nullptr && entry->bytes.size() > most_bytes) {
        return MakeError(ErrorCode::kCorrupt, "metadata key '{}' has {} bytes; expected at most {}",
                         key, entry->bytes.size(), most_bytes);
    }
    return meta.String(key);
}

// The tokenizer from a stored tokenizer.json.
Result<std::unique_ptr<tokenizer::Tokenizer>> LoadKept(const Metadata& meta) {
    WEFT_ASSIGN(const tokenizer::KeptJson kept, ReadKeptTokenizer(meta));
    auto made = tokenizer::MakeTokenizer(kept);
    if (made.ok()) return made;
    return MakeError(made.error().code, "metadata key '{}': {}", kKeptJsonKey,
                     made.error().message);
}

Result<std::unique_ptr<tokenizer::Tokenizer>> LoadFrom(const Metadata& meta) {
    const bool kept = meta.Has(kKeptJsonKey);
    if (kept) {
        WEFT_ASSIGN(const std::string model, meta.StringOr(Key("model"), "none"));
        // A tokenizer.json has the pre-tokenizer if the other keys don't.
        if (!tokenizer::IsTokenizerModel(model) || LacksPre(meta)) return LoadKept(meta);
    }
    WEFT_ASSIGN(tokenizer::TokenizerData data, ReadTokenizer(meta));
    auto made = tokenizer::Tokenizer::Make(std::move(data));
    if (made.ok() || !kept || made.error().code != ErrorCode::kUnsupported) return made;
    return LoadKept(meta);
}

// Warns about a missing pre-tokenizer, with the guess.
void WarnOfGuess(const ModelSource& source) {
    const Metadata& meta = source.meta();
    if (!LacksPre(meta) || meta.Has(kKeptJsonKey)) return;
    const auto data = ReadTokenizer(meta);
    if (!data.ok()) return;
    Log(LogLevel::kWarning,
        "{}: metadata key '{}' does not name the pre-tokenizer: assuming '{}'{}. If outputs look "
        "wrong, convert the model again with a current converter",
        source.name(), Key("pre"), data->pre.empty() ? "default" : data->pre,
        data->pre.empty() ? ", since the family of the vocabulary is not known"
                          : ", from the architecture and the vocabulary");
}

// The value in files that were written without a tokenizer.
bool IsNoTokenizer(std::string_view model) {
    return model == "none" || model == "no_vocab";
}

}  // namespace

bool HasTokenizer(const ModelSource& source) {
    if (!source.folder().empty()) {
        const auto file = tokenizer::FindTokenizerFile(source.folder());
        return file.ok() || file.error().code != ErrorCode::kNotFound;
    }
    if (source.meta().Has(kKeptJsonKey)) return true;
    const auto model = source.meta().String(Key("model"));
    if (!model.ok()) return model.error().code != ErrorCode::kNotFound;
    return !IsNoTokenizer(*model);
}

Result<tokenizer::TokenizerData> ReadTokenizer(const Metadata& meta) {
    tokenizer::TokenizerData data;
    WEFT_ASSIGN(data.model, meta.String(Key("model")));
    if (!tokenizer::IsTokenizerModel(data.model)) return data;  // Make refuses it, with its name
    WEFT_ASSIGN(data.pre, meta.StringOr(Key("pre"), ""));
    if (LacksPre(meta)) {
        WEFT_ASSIGN(const std::string architecture, meta.StringOr("general.architecture", ""));
        WEFT_ASSIGN(const std::vector<std::string_view> tokens, meta.Strings(Key("tokens")));
        data.pre = GuessPreTokenizer(architecture, tokens);
    }
    WEFT_TRY(ReadArrays(meta, data));
    WEFT_TRY(ReadIds(meta, data));
    WEFT_TRY(ReadFlags(meta, data));
    if (data.model == "t5") WEFT_TRY(ReadUnigram(meta, data));
    return data;
}

Result<tokenizer::KeptJson> ReadKeptTokenizer(const Metadata& meta) {
    tokenizer::KeptJson kept;
    WEFT_ASSIGN(kept.json, KeptFile(meta, kKeptJsonKey, tokenizer::kMostTokenizerBytes));
    for (const MetaEntry& entry : meta.entries()) {
        if (!entry.key.starts_with(kKeptPrefix)) continue;
        const std::string name(entry.key.substr(std::string_view(kKeptPrefix).size()));
        WEFT_ASSIGN(kept.beside[name + ".json"],
                    KeptFile(meta, std::string(entry.key), tokenizer::kMostHintBytes));
    }
    return kept;
}

Result<std::unique_ptr<tokenizer::Tokenizer>> LoadTokenizer(const ModelSource& source) {
    if (!source.folder().empty()) return tokenizer::OpenTokenizerFolder(source.folder());
    if (!HasTokenizer(source)) {
        return MakeError(ErrorCode::kNotFound,
                         "{}: the model has no tokenizer, so it cannot read or write text",
                         source.name());
    }
    auto made = LoadFrom(source.meta());
    if (made.ok()) {
        WarnOfGuess(source);
        return made;
    }
    if (made.error().message.starts_with(source.name())) return made;
    return Error{made.error().code, source.name() + ": " + made.error().message};
}

}  // namespace weft::model_files
