#include "model_files/hf/folder_config.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>

#include "base/dangling_link.h"
#include "base/file_kind.h"
#include "model_files/folder_kind.h"
#include "model_files/gguf.h"
#include "model_files/sampling.h"
#include "tokenizer/open.h"

namespace weft::model_files::hf {
namespace {

constexpr const char* kChatTemplateKey = "tokenizer.chat_template";
constexpr size_t kMostTemplateName = 64;

// As llama.cpp's converter: one key for the default template, one for each other template, whose
// name may have letters, digits and '_', and the list of the other names.
Status WriteChatTemplates(const std::string& path, GgufWriter& writer) {
    const Result<tokenizer::ChatTemplates> found = tokenizer::ReadChatTemplates(path);
    if (!found.ok() && found.error().code == ErrorCode::kNotFound) return {};
    if (!found.ok()) return found.error();
    std::map<std::string, std::string_view> others;
    for (const auto& [name, text] : *found) {
        std::string key = name.substr(0, kMostTemplateName);
        std::ranges::replace_if(
            key, [](unsigned char c) { return !std::isalnum(c); }, '_');
        if (name != tokenizer::kDefaultTemplate && !key.empty()) others.emplace(key, text);
    }
    writer.String(kChatTemplateKey, found->at(tokenizer::kDefaultTemplate));
    std::vector<std::string> names;
    for (const auto& [name, text] : others) {
        writer.String(fmt::format("{}.{}", kChatTemplateKey, name), text);
        names.push_back(name);
    }
    if (!names.empty()) writer.Strings("tokenizer.chat_templates", names);
    return {};
}

Result<std::vector<std::byte>> MakeMetadata(const std::string& path, const Family& family,
                                            const Config& config, const TensorFacts& facts) {
    GgufWriter writer;
    writer.String("general.architecture", family.architecture);
    writer.String("general.type", "model");
    writer.String("general.name",
                  std::filesystem::path(path).lexically_normal().filename().string());
    WEFT_TRY(WriteChatTemplates(path, writer));
    WriteSamplingKeys(ReadGenerationConfig(path), writer);
    MetaWriter meta(writer, family, facts);
    WEFT_TRY(family.meta == nullptr ? WriteCommon(config, meta) : family.meta(config, meta));
    if (!family.gating.empty()) {
        WEFT_TRY(WriteExperts(config, meta, "moe_intermediate_size", family.gating));
    }
    if (!facts.draft_fault.empty()) meta.String("nextn_fault", facts.draft_fault);
    return writer.Header();
}

}  // namespace

Result<FolderConfig> ReadFolderConfig(const std::string& path) {
    const std::string config_path = std::filesystem::path(path) / "config.json";
    if (!IsListed(config_path)) {
        const std::string kind = FolderKind(path);
        return MakeError(ErrorCode::kNotFound, "{}: no config.json and no GGUF file. {}", path,
                         kind.empty() ? "Give the folder or the file of a model" : "It is " + kind);
    }
    WEFT_ASSIGN(std::string text, ReadModelText(config_path, kMostConfigBytes));
    return ParseFolderConfig(std::move(text), path);
}

Result<FolderConfig> ParseFolderConfig(std::string text, const std::string& path,
                                       const TensorFacts& facts) {
    const std::string config_path = std::filesystem::path(path) / "config.json";
    FolderConfig read;
    read.text = std::move(text);
    WEFT_ASSIGN(const Config whole, Config::Parse(read.text, config_path));
    WEFT_ASSIGN(read.family, FindFamily(whole));
    WEFT_ASSIGN(read.config, TextConfig(whole, *read.family));
    WEFT_ASSIGN(read.header, MakeMetadata(path, *read.family, read.config, facts));
    WEFT_ASSIGN(GgufHeader parsed, ParseGguf(read.header, read.header.size(), config_path));
    read.entries = std::move(parsed.entries);
    return read;
}

}  // namespace weft::model_files::hf
