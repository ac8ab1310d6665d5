#include "model_files/write_tokenizer.h"

#include <string>

namespace weft::model_files {

void WriteTokenizer(const tokenizer::TokenizerData& data, GgufWriter& writer) {
    const auto key = [](const char* name) { return std::string("tokenizer.ggml.") + name; };
    writer.String(key("model"), data.model);
    if (!data.pre.empty()) writer.String(key("pre"), data.pre);
    writer.Strings(key("tokens"), data.tokens);
    if (!data.scores.empty()) writer.F32s(key("scores"), data.scores);
    writer.I32s(key("token_type"), data.types);
    if (!data.merges.empty()) writer.Strings(key("merges"), data.merges);
    const auto id = [&](const char* name, int32_t value) {
        if (value >= 0) writer.U32(key(name), static_cast<uint32_t>(value));
    };
    id("bos_token_id", data.bos);
    id("eos_token_id", data.eos);
    id("eot_token_id", data.eot);
    id("unknown_token_id", data.unk);
    id("padding_token_id", data.pad);
    writer.Bool(key("add_bos_token"), data.add_bos);
    writer.Bool(key("add_eos_token"), data.add_eos);
    if (data.model == "llama") writer.Bool(key("add_space_prefix"), data.add_space_prefix);
}

}  // namespace weft::model_files
