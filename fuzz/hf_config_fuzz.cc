// libFuzzer target: any text as the config.json of a model folder: its family, its quantization and
// its metadata.
//     build-fuzz/fuzz/hf_config_fuzz -max_total_time=60 -malloc_limit_mb=64 fuzz/corpus/hf_config
#include <cstdlib>

#include "model_files/gguf.h"
#include "model_files/hf/family.h"
#include "model_files/hf/quantization.h"

namespace {

using namespace weft;
using namespace weft::model_files;

Status Use(std::string_view text) {
    WEFT_ASSIGN(const hf::Config whole, hf::Config::Parse(text, "fuzz"));
    WEFT_ASSIGN(const hf::Family* family, hf::FindFamily(whole));
    WEFT_ASSIGN(const hf::Config config, hf::TextConfig(whole, *family));
    const auto quantization = hf::ReadQuantization(config);
    if (quantization.ok() && quantization->group < 0) std::abort();
    GgufWriter writer;
    hf::MetaWriter meta(writer, *family);
    WEFT_TRY(family->meta == nullptr ? hf::WriteCommon(config, meta) : family->meta(config, meta));
    const std::vector<std::byte> header = writer.Header();
    if (!ParseGguf(header, header.size(), "fuzz").ok()) std::abort();
    WEFT_ASSIGN(const hf::RopeConfig rope, hf::ReadRope(config));
    WEFT_ASSIGN(const int64_t head_dim, hf::HeadDim(config));
    WEFT_ASSIGN(const int64_t rotary, hf::RotaryDim(config, head_dim));
    if (rope.type != "llama3") return {};
    WEFT_ASSIGN(const std::vector<float> factors, hf::Llama3Factors(rope, rotary));
    if (factors.size() != static_cast<size_t>(rotary / 2)) std::abort();
    return {};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    (void)Use({reinterpret_cast<const char*>(data), size});
    return 0;
}
