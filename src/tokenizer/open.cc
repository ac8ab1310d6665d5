#include "tokenizer/open.h"

#include <algorithm>
#include <filesystem>

#include "base/dangling_link.h"
#include "base/file_kind.h"
#include "tokenizer/hints.h"
#include "tokenizer/read_json.h"
#include "tokenizer/read_sentencepiece.h"
#include "tokenizer/read_tekken.h"
#include "tokenizer/read_tiktoken.h"

namespace weft::tokenizer {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr uint64_t kMostTemplateBytes = 64 << 20;

// Also true for a link to a missing file: opening it fails by its name.
bool Exists(const std::string& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) || !DanglingLink(path).empty();
}

// The first name in alphabetical order that ends with `ending`; empty: none.
std::string FindEnding(const std::string& folder, std::string_view ending) {
    std::string found;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename().string();
        if (name.ends_with(ending) && (found.empty() || name < found)) found = name;
    }
    return found;
}

bool IsVocabulary(const std::string& path) {
    return fs::path(path).filename() == "vocab.json";
}

// The ids of added tokens by their texts, which transformers before 4.34 wrote.
Status AddTokensOf(const std::string& path, TokenizerHints& hints) {
    if (!hints.added.empty() || !IsListed(path)) return {};
    WEFT_ASSIGN(const std::string text, ReadModelText(path, kMostHintBytes));
    const auto ids = ParseJson(text);
    if (!ids.ok()) return Error{ids.error().code, path + ": " + ids.error().message};
    if (!ids->is_object()) return MakeError(ErrorCode::kCorrupt, "{}: not a JSON object", path);
    for (const auto& [token, id] : ids->items()) {
        if (!id.is_number_integer() || id < 0 || id >= kMostTokens) {
            return MakeError(ErrorCode::kCorrupt, "{}: '{}' has no id", path, token.substr(0, 80));
        }
        const std::vector<std::string> named = NamedTokens(hints);
        const bool special = std::ranges::find(named, token) != named.end();
        hints.added.push_back(
            {.id = id, .text = token, .special = special, .normalized = !special});
    }
    return {};
}

// The text of a file; of vocab.json, the tokenizer.json that it makes with merges.txt beside it,
// and the rest of the hints.
Result<std::string> TextOf(const std::string& path, TokenizerHints& hints) {
    WEFT_ASSIGN(std::string text, ReadModelText(path, kMostTokenizerBytes));
    if (!IsVocabulary(path)) return text;
    const std::string beside = fs::path(path).replace_filename("merges.txt");
    WEFT_ASSIGN(const std::string merges, ReadModelText(beside, kMostTokenizerBytes));
    AddClassTokens(hints);
    WEFT_TRY(AddTokensOf(fs::path(path).replace_filename("added_tokens.json"), hints));
    return JoinVocabulary(text, merges, hints);
}

Result<std::unique_ptr<Tokenizer>> Read(const std::string& path, TokenizerHints hints) {
    // transformers gives the tokens of these files other ids.
    if (path.ends_with("sentencepiece.bpe.model") &&
        (hints.model_type == "xlm-roberta" || hints.model_type == "camembert")) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: the ids of a {} model are not those of this file; add the model's "
                         "tokenizer.json",
                         path, hints.model_type);
    }
    const auto text = TextOf(path, hints);
    auto made = !text.ok()                    ? text.error()
                : path.ends_with(kTekkenFile) ? ReadTekken(*text, hints)
                : path.ends_with(".json")     ? ReadTokenizerJson(*text, hints)
                : LooksLikeTiktoken(*text)    ? ReadTiktoken(*text, hints)
                                              : ReadSentencePiece(*text, hints);
    if (made.ok() || made.error().message.starts_with(path)) return made;
    return Error{made.error().code, path + ": " + made.error().message};
}

// The templates in a file's JSON: a text, a list of {name, template}, or an object of texts.
ChatTemplates TemplatesIn(const json& object) {
    const json value = object.is_object() ? object.value("chat_template", json()) : json();
    ChatTemplates found;
    std::string first;
    const auto add = [&](const json& name, const json& text) {
        if (!name.is_string() || !text.is_string() || text == "") return;
        if (first.empty()) first = text.get<std::string>();
        found.insert_or_assign(name.get<std::string>(), text.get<std::string>());
    };
    if (value.is_string()) add(kDefaultTemplate, value);
    for (const auto& [key, entry] : value.items()) {
        if (value.is_object()) add(key, entry);
        if (value.is_array() && entry.is_object()) {
            add(entry.value("name", json("")), entry.value("template", json()));
        }
    }
    if (!first.empty()) found.emplace(kDefaultTemplate, first);
    return found;
}

}  // namespace

Result<std::string> FindTokenizerFile(const std::string& folder) {
    for (const char* name : {"tokenizer.json", "tiktoken.model", "tokenizer.model", "spiece.model",
                             "sentencepiece.bpe.model"}) {
        if (Exists(folder + "/" + name)) return folder + "/" + name;
    }
    const std::string tiktoken =
        Exists(folder + "/" + kTekkenFile) ? kTekkenFile : FindEnding(folder, ".tiktoken");
    if (!tiktoken.empty()) return folder + "/" + tiktoken;
    if (Exists(folder + "/vocab.json") && Exists(folder + "/merges.txt")) {
        return folder + "/vocab.json";
    }
    std::error_code error;
    return MakeError(ErrorCode::kNotFound,
                     "{}: {}; expected tokenizer.json, tiktoken.model, tokenizer.model, "
                     "spiece.model, tekken.json, *.tiktoken, or vocab.json with merges.txt",
                     folder, fs::is_directory(folder, error) ? "no tokenizer" : "no such folder");
}

Result<std::unique_ptr<Tokenizer>> OpenTokenizerFolder(const std::string& folder) {
    WEFT_ASSIGN(const std::string path, FindTokenizerFile(folder));
    WEFT_ASSIGN(TokenizerHints hints, ReadHints(folder));
    return Read(path, std::move(hints));
}

Result<std::string> TokenizerJsonOf(const std::string& folder) {
    WEFT_ASSIGN(const std::string path, FindTokenizerFile(folder));
    if (!path.ends_with(".json") || path.ends_with(kTekkenFile)) {
        return MakeError(ErrorCode::kNotFound, "{}: not a tokenizer.json", path);
    }
    TokenizerHints hints;
    if (IsVocabulary(path)) {
        WEFT_ASSIGN(hints, ReadHints(folder));
    }
    return TextOf(path, hints);
}

Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path) {
    std::error_code error;
    if (fs::is_directory(path, error)) return OpenTokenizerFolder(path);
    const std::string folder = fs::path(path).parent_path().string();
    WEFT_ASSIGN(TokenizerHints hints, ReadHints(folder.empty() ? "." : folder));
    return Read(path, std::move(hints));
}

std::vector<std::string> FindMoreTemplates(const std::string& folder) {
    std::vector<std::string> found;
    std::error_code error;
    const fs::path more = fs::path(folder) / kMoreTemplates;
    for (fs::directory_iterator at(more, error), end; !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename().string();
        if (name.ends_with(".jinja") && Exists(at->path())) {
            found.push_back(fmt::format("{}/{}", kMoreTemplates, name));
        }
    }
    std::ranges::sort(found);
    return found;
}

Result<ChatTemplates> ReadChatTemplates(const std::string& folder) {
    ChatTemplates templates;
    const std::string jinja = folder + "/chat_template.jinja";
    if (Exists(jinja)) {
        WEFT_ASSIGN(templates[kDefaultTemplate], ReadModelText(jinja, kMostTemplateBytes));
    }
    for (const std::string& name : FindMoreTemplates(folder)) {
        WEFT_ASSIGN(templates[fs::path(name).stem().string()],
                    ReadModelText(folder + "/" + name, kMostTemplateBytes));
    }
    for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
        const std::string path = folder + "/" + name;
        if (templates.contains(kDefaultTemplate) || !Exists(path)) continue;
        WEFT_ASSIGN(const std::string text, ReadModelText(path, kMostTemplateBytes));
        const auto parsed = ParseJson(text);
        if (!parsed.ok()) return Error{parsed.error().code, path + ": " + parsed.error().message};
        templates.merge(TemplatesIn(*parsed));
    }
    if (!templates.empty()) {
        templates.emplace(kDefaultTemplate, templates.begin()->second);
        return templates;
    }
    return MakeError(ErrorCode::kNotFound,
                     "{}: no chat template: neither chat_template.jinja nor a 'chat_template' in "
                     "tokenizer_config.json or chat_template.json",
                     folder);
}

}  // namespace weft::tokenizer
