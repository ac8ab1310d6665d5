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

Result<std::unique_ptr<Tokenizer>> Read(const std::string& path, const TokenizerHints& hints) {
    // transformers gives the tokens of these files other ids.
    if (path.ends_with("sentencepiece.bpe.model") &&
        (hints.model_type == "xlm-roberta" || hints.model_type == "camembert")) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: the ids of a {} model are not those of this file; add the model's "
                         "tokenizer.json",
                         path, hints.model_type);
    }
    WEFT_ASSIGN(const std::string text, ReadModelText(path, kMostTokenizerBytes));
    auto made = path.ends_with(kTekkenFile) ? ReadTekken(text, hints)
                : path.ends_with(".json")   ? ReadTokenizerJson(text, hints)
                : LooksLikeTiktoken(text)   ? ReadTiktoken(text, hints)
                                            : ReadSentencePiece(text, hints);
    if (made.ok()) return made;
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
    std::error_code error;
    return MakeError(ErrorCode::kNotFound,
                     "{}: {}; expected tokenizer.json, tiktoken.model, tokenizer.model, "
                     "spiece.model, tekken.json or *.tiktoken",
                     folder, fs::is_directory(folder, error) ? "no tokenizer" : "no such folder");
}

Result<std::unique_ptr<Tokenizer>> OpenTokenizerFolder(const std::string& folder) {
    WEFT_ASSIGN(const std::string path, FindTokenizerFile(folder));
    WEFT_ASSIGN(const TokenizerHints hints, ReadHints(folder));
    return Read(path, hints);
}

Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path) {
    std::error_code error;
    if (fs::is_directory(path, error)) return OpenTokenizerFolder(path);
    const std::string folder = fs::path(path).parent_path().string();
    WEFT_ASSIGN(const TokenizerHints hints, ReadHints(folder.empty() ? "." : folder));
    return Read(path, hints);
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
