#include "model_files/write_tokenizer.h"

#include <string>

#include "model_files/read_tokenizer.h"

namespace weft::model_files {
namespace {

std::string GgmlKey(const char* name) {
    return std::string("tokenizer.ggml.") + name;
}

void WriteIds(const tokenizer::TokenizerData& data, GgufWriter& writer) {
    const std::pair<const char*, int32_t> named[] = {{"bos_token_id", data.bos},
                                                     {"eos_token_id", data.eos},
                                                     {"eot_token_id", data.eot},
                                                     {"unknown_token_id", data.unk},
                                                     {"padding_token_id", data.pad}};
    for (const auto& [name, id] : named) {
        if (id >= 0) writer.U32(GgmlKey(name), static_cast<uint32_t>(id));
    }
}

}  // namespace

void WriteTokenizer(const tokenizer::TokenizerData& data, GgufWriter& writer) {
    writer.String(GgmlKey("model"), data.model);
    if (!data.pre.empty()) writer.String(GgmlKey("pre"), data.pre);
    writer.Strings(GgmlKey("tokens"), data.tokens);
    if (!data.scores.empty()) writer.F32s(GgmlKey("scores"), data.scores);
    writer.I32s(GgmlKey("token_type"), data.types);
    if (!data.merges.empty()) writer.Strings(GgmlKey("merges"), data.merges);
    WriteIds(data, writer);
    for (const auto& [key, ids] : kFlagKeys) {
        if (!(data.*ids).empty()) writer.I32s(key, data.*ids);
    }
    writer.Bool(GgmlKey("add_bos_token"), data.add_bos);
    writer.Bool(GgmlKey("add_eos_token"), data.add_eos);
    if (data.model == "llama") writer.Bool(GgmlKey("add_space_prefix"), data.add_space_prefix);
}

void WriteKeptTokenizer(const tokenizer::KeptJson& kept, const tokenizer::TokenizerData& ids,
                        GgufWriter& writer) {
    writer.String(GgmlKey("model"), "none");
    WriteIds(ids, writer);
    writer.String(kKeptJsonKey, kept.json);
    for (const auto& [name, text] : kept.beside) {
        const std::string_view stem = std::string_view(name).substr(0, name.size() - 5);  // .json
        writer.String(kKeptPrefix + std::string(stem), text);
    }
}

}  // namespace weft::model_files
