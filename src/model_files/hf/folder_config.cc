#include "model_files/hf/folder_config.h"

#include <filesystem>

#include "base/file_kind.h"
#include "model_files/folder_kind.h"
#include "model_files/gguf.h"
#include "model_files/sampling.h"
#include "tokenizer/open.h"

namespace weft::model_files::hf {
namespace {

Result<std::vector<std::byte>> MakeMetadata(const std::string& path, const Family& family,
                                            const Config& config, const TensorFacts& facts) {
    GgufWriter writer;
    writer.String("general.architecture", family.architecture);
    writer.String("general.type", "model");
    writer.String("general.name",
                  std::filesystem::path(path).lexically_normal().filename().string());
    const Result<std::string> chat = tokenizer::ReadChatTemplate(path);
    if (chat.ok()) writer.String("tokenizer.chat_template", *chat);
    if (!chat.ok() && chat.error().code != ErrorCode::kNotFound) return chat.error();
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
    std::error_code ignored;
    if (!std::filesystem::exists(config_path, ignored)) {
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
