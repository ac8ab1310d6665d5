#include "serve/api/llama/fim.h"

#include "base/log.h"

namespace weft::serve {
namespace {

using tokenizer::Tokenizer;

// Token names of a model family. SentencePiece names use U+2581 for the underscores, DeepSeek names
// U+FF5C for the bars.
struct FimNames {
    const char *prefix, *suffix, *middle;
    const char* pad = "";
    const char* repo = "";
    const char* file = "";
    bool suffix_first = false;
};

constexpr FimNames kFimNames[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>",
     "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>", "<repo_name>", "<file_sep>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>", "<reponame>", "<filename>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<fim-pad>", "<fim-repo>"},
    {"<\uFF5Cfim\u2581begin\uFF5C>", "<\uFF5Cfim\u2581hole\uFF5C>", "<\uFF5Cfim\u2581end\uFF5C>"},
    {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"},
    {"<PRE>", "<SUF>", "<MID>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    {"<|prefix|>", "<|suffix|>", "<|middle|>"},
    {"[PREFIX]", "[SUFFIX]", "", "", "", "", true},
};

FimTokens ByNames(const Tokenizer& tokenizer) {
    const auto find = [&](const char* name) { return *name == '\0' ? -1 : tokenizer.Find(name); };
    FimTokens best;
    for (const FimNames& names : kFimNames) {
        FimTokens found{.prefix = find(names.prefix), .suffix = find(names.suffix)};
        found.middle = find(names.middle);
        found.pad = find(names.pad);
        found.repo = find(names.repo);
        found.file = find(names.file);
        found.suffix_first = names.suffix_first;
        if (!found.ok()) continue;
        if (found.repo >= 0 && found.file >= 0) return found;
        if (!best.ok()) best = found;
    }
    return best;
}

// Reads a token id from GGUF metadata; ignores an invalid id.
void TakeId(const model_files::Metadata& meta, const char* key, const Tokenizer& tokenizer,
            int32_t& id) {
    const std::string name = std::string("tokenizer.ggml.") + key;
    if (!meta.Has(name)) return;
    const auto value = meta.Int(name, 0, tokenizer.vocab_size() - 1);
    if (value.ok()) {
        id = static_cast<int32_t>(*value);
    } else {
        Log(LogLevel::kWarning, "{}. The key is ignored.", value.error().message);
    }
}

void AppendTokens(const std::vector<int32_t>& more, std::vector<int32_t>& tokens) {
    tokens.insert(tokens.end(), more.begin(), more.end());
}

// Tokens before every prompt of this model.
std::vector<int32_t> Head(const Tokenizer& tokenizer) {
    const tokenizer::TokenizerData& data = tokenizer.data();
    if (!data.prefix.empty() || !data.suffix.empty()) return data.prefix;
    if (data.add_bos && data.bos >= 0) return {data.bos};
    return {};
}

bool IsRepository(const FimTokens& fim) {
    return fim.repo >= 0 && fim.file >= 0;
}

// Appends the context files, with the model's file markers if it has them.
void AppendFiles(const FimTokens& fim, const Tokenizer& tokenizer, const FimText& text,
                 std::vector<int32_t>& tokens) {
    if (text.files.empty()) return;
    if (IsRepository(fim)) {
        tokens.push_back(fim.repo);
        AppendTokens(PlainTokens(tokenizer, "myproject\n"), tokens);
    }
    for (const std::vector<int32_t>& file : text.files) AppendTokens(file, tokens);
    if (!IsRepository(fim)) return;
    tokens.push_back(fim.file);
    AppendTokens(PlainTokens(tokenizer, "filename\n"), tokens);
}

}  // namespace

FimTokens FindFim(const model_files::Metadata& meta, const Tokenizer& tokenizer) {
    FimTokens fim = ByNames(tokenizer);
    FimTokens keys;
    const struct {
        const char *older, *key;
        int32_t* id;
    } ids[] = {{"prefix_token_id", "fim_pre_token_id", &keys.prefix},
               {"suffix_token_id", "fim_suf_token_id", &keys.suffix},
               {"middle_token_id", "fim_mid_token_id", &keys.middle},
               {nullptr, "fim_pad_token_id", &keys.pad},
               {nullptr, "fim_rep_token_id", &keys.repo},
               {nullptr, "fim_sep_token_id", &keys.file}};
    for (const auto& [older, key, id] : ids) {
        if (older != nullptr) TakeId(meta, older, tokenizer, *id);
        TakeId(meta, key, tokenizer, *id);
    }
    if (keys.ok()) fim = {keys.prefix, keys.suffix, keys.middle, fim.pad, fim.repo, fim.file};
    if (keys.pad >= 0) fim.pad = keys.pad;
    if (keys.repo >= 0) fim.repo = keys.repo;
    if (keys.file >= 0) fim.file = keys.file;
    return fim;
}

std::vector<int32_t> PlainTokens(const Tokenizer& tokenizer, const std::string& text) {
    if (text.empty()) return {};
    return tokenizer.Encode(text, {.add_special = false});
}

std::vector<int32_t> FileTokens(const FimTokens& fim, const Tokenizer& tokenizer,
                                const FimFile& file) {
    const auto& [name, content] = file;
    if (!IsRepository(fim)) return PlainTokens(tokenizer, content + "\n");
    std::vector<int32_t> tokens{fim.file};
    AppendTokens(PlainTokens(tokenizer, name + "\n" + content + "\n"), tokens);
    return tokens;
}

std::vector<int32_t> FimPrompt(const FimTokens& fim, const Tokenizer& tokenizer,
                               const FimText& text) {
    std::vector<int32_t> tokens = Head(tokenizer);
    AppendFiles(fim, tokenizer, text, tokens);
    if (fim.suffix_first) {
        tokens.push_back(fim.suffix);
        AppendTokens(text.suffix, tokens);
        tokens.push_back(fim.prefix);
        AppendTokens(text.prefix, tokens);
    } else {
        tokens.push_back(fim.prefix);
        AppendTokens(text.prefix, tokens);
        tokens.push_back(fim.suffix);
        AppendTokens(text.suffix, tokens);
        tokens.push_back(fim.middle);
    }
    AppendTokens(text.begun, tokens);
    return tokens;
}

void EndAtFim(const FimTokens& fim, engine::Request& request) {
    for (const int32_t id : {fim.prefix, fim.suffix, fim.middle, fim.pad, fim.repo, fim.file}) {
        if (id >= 0) request.end_tokens.push_back(id);
    }
}

}  // namespace weft::serve
