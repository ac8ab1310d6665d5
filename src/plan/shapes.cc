#include "plan/shapes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "engine/drafts/drafting.h"
#include "model/model_shape.h"
#include "model_files/draft_source.h"
#include "plan/machine.h"
#include "plan/names.h"
#include "plan/packed_types.h"
#include "quantize/plan.h"

namespace weft::plan {
namespace {

using model::ModelShape;
using model_files::ModelSource;
using model_files::TensorInfo;

// int4_experts: the model is published with 4-bit experts and other weights in BF16; so are its
// "4bit" files.
Status SetTypes(ModelShape& model, const std::string& architecture, std::string_view type,
                bool int4_experts) {
    const bool gpt = architecture == "gpt-oss";
    const bool published = int4_experts && (type.empty() || type == "4bit" || type == "INT4");
    if (published) type = "BF16";
    if (type.empty()) type = gpt ? "MXFP4" : "BF16";
    WEFT_ASSIGN(const quantize::QuantizeOptions options, FindWeightType(type));
    WEFT_ASSIGN(const quantize::QuantizePlan plan, quantize::PlanQuantize(model, options));
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
        const bool experts = plan.tensors[i].from->name.ends_with("_exps.weight");
        DType to = plan.tensors[i].to;
        if (experts && gpt) to = DType::kMXFP4;
        if (experts && published) to = DType::kQ4_0;
        model.SetType(i, to);
    }
    return {};
}

// If no type is given, uses the types of the file's own quantization.
void SetPackedTypes(const PackedTypes& packed, ModelShape& model) {
    for (size_t i = 0; i < model.tensors().size(); ++i) {
        const TensorInfo& tensor = model.tensors()[i];
        if (const auto dtype = packed.Of(tensor.name, tensor.cols)) model.SetType(i, *dtype);
    }
    model.SetNote(packed.note());
}

}  // namespace

Result<std::unique_ptr<ModelSource>> MakeShape(const std::string& config_text,
                                               const std::string& name, std::string_view type,
                                               bool draft_head) {
    WEFT_ASSIGN(std::unique_ptr<ModelShape> shape, ModelShape::Make(config_text, name, draft_head));
    const PackedTypes packed(shape->family(), shape->config(), config_text);
    WEFT_ASSIGN(const bool int4_experts, shape->config().BoolOr({"int4_experts"}, false));
    const std::string architecture(shape->family().architecture);
    WEFT_TRY(SetTypes(*shape, architecture, type, int4_experts));
    if (type.empty()) SetPackedTypes(packed, *shape);
    return std::unique_ptr<ModelSource>(std::move(shape));
}

namespace {

Result<std::unique_ptr<ModelSource>> MakeNamed(const ShapeWord& word, bool head) {
    for (const EmbeddedFile& file : EmbeddedFiles()) {
        if (file.folder != "shapes" || file.name != word.shape) continue;
        if (word.context == 0) {
            return MakeShape(std::string(file.text), word.shape, word.type, head);
        }
        WEFT_ASSIGN(nlohmann::json config, ParseJsonText(file.text));
        config["max_position_embeddings"] = word.context;
        return MakeShape(config.dump(), word.shape, word.type, head);
    }
    return MakeError(ErrorCode::kUsage, "no shape '{}'", word.shape);
}

bool IsFolderWithoutWeights(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) return false;
    const auto has_weights = [](const fs::directory_entry& entry) {
        const fs::path end = entry.path().extension();
        return end == ".safetensors" || end == ".gguf";
    };
    fs::directory_iterator files(path, ignored), end;
    return std::none_of(files, end, has_weights);
}

// "; those like it are llama-3.1-8b, llama-3-8b and 9 more".
std::string LikeIt(const std::string& name) {
    constexpr size_t kMost = 12;
    std::vector<std::string> names = NamesLike(name);
    const bool any = names.size() < ShapeNames().size();
    const size_t more = names.size() - std::min(names.size(), kMost);
    names.resize(names.size() - more);
    return fmt::format("; {} are {}{}", any ? "those like it" : "there", fmt::join(names, ", "),
                       more > 0 ? fmt::format(" and {} more", more) : "");
}

// Error for an unknown name. Explains whether its type is unknown, or lists similar names.
Error NoSuchShape(const std::string& word, const std::string& head, const std::string& type) {
    if (!type.empty() && FindShape(head)) {
        const auto known = FindWeightType(type);
        if (!known.ok()) return known.error();
    }
    return MakeError(ErrorCode::kUsage,
                     "no file or folder '{}', and no well-known model of that name{}. A path of "
                     "its config.json does as well",
                     word, LikeIt(head));
}

// Names the file in the error if config.json has another name.
Error UnderItsName(Error error, const std::string& said, const std::string& name) {
    const size_t at = error.message.find(said);
    if (at != error.message.npos) error.message.replace(at, said.size(), name);
    return error;
}

// Error for a repository, "hf:OWNER/NAME", that is not in the cache.
Error NotHere(const std::string& word) {
    const size_t slash = word.rfind('/');
    const std::string name = slash == word.npos ? word : word.substr(slash + 1);
    return MakeError(ErrorCode::kNotFound,
                     "{}: it is not in the cache, and no well-known model has its name{}. A path "
                     "of its config.json does as well, or 'weft pull {}' fetches it",
                     word, LikeIt(name), word);
}

}  // namespace

Result<std::unique_ptr<ModelSource>> OpenShape(const std::string& word, bool draft_head) {
    namespace fs = std::filesystem;
    const size_t colon = word.rfind(':');
    const std::string head = word.substr(0, colon);
    const std::string type = colon == word.npos ? "" : word.substr(colon + 1);
    std::error_code ignored;
    if (word.ends_with(':') && !fs::exists(word, ignored)) {
        return MakeError(ErrorCode::kUsage, "'{}': expected a type behind the colon, as {}:q4_k_m",
                         word, head);
    }
    const std::vector<std::string> names = ShapeNames();
    if (std::ranges::binary_search(names, head)) {
        const auto named = FindShape(word);
        if (named) return MakeNamed(*named, draft_head);
        return NoSuchShape(word, head, type);
    }
    if (head.ends_with(".json")) {
        WEFT_ASSIGN(const std::string text, ReadTextFile(head, model_files::hf::kMostConfigBytes));
        const fs::path folder = fs::path(head).parent_path();
        auto shape = MakeShape(text, folder.string(), type, draft_head);
        if (shape.ok()) return shape;
        return UnderItsName(shape.error(), (folder / "config.json").string(), head);
    }
    if (IsFolderWithoutWeights(head)) {
        return OpenShape(
            (fs::path(head) / "config.json").string() + (type.empty() ? "" : ":" + type),
            draft_head);
    }
    // Local files and the cache take precedence over a known name.
    const bool hub = word.starts_with("hf:");
    const bool local = fs::exists(word, ignored) || word.ends_with(".gguf");
    if (local || (colon != word.npos)) {
        auto opened = model_files::OpenModel(word);
        if (opened.ok() || local || word.starts_with("synthetic:")) return opened;
        if (const auto named = FindShape(word)) return MakeNamed(*named, draft_head);
        if (hub && opened.error().code == ErrorCode::kNotFound) return NotHere(word);
        if (hub || !FindShape(head)) return opened;
    } else if (const auto named = FindShape(word)) {
        return MakeNamed(*named, draft_head);
    }
    return NoSuchShape(word, head, type);
}

std::string QuantizedTypeOf(const std::string& word) {
    namespace fs = std::filesystem;
    const size_t colon = word.rfind(':');
    std::string type = colon == word.npos ? "" : word.substr(colon + 1);
    std::error_code ignored;
    if (colon == word.npos && !fs::exists(word, ignored)) {
        if (const auto named = FindShape(word)) type = named->type;
    }
    const auto known = FindWeightType(type);
    return known.ok() && Info(known->type.base).quantized ? type : "";
}

Result<OpenedShape> OpenWalk(const std::string& word, KvTypes kv_dtype, const std::string& head,
                             std::span<const model_files::NamedAdapter> adapters) {
    OpenedShape opened;
    const bool own = head == engine::DraftOptions::kDraftHead;
    WEFT_ASSIGN(opened.source, OpenShape(word, own));
    const auto* shape = dynamic_cast<const ModelShape*>(opened.source.get());
    opened.is_shape = shape != nullptr;
    if (shape != nullptr) opened.note = shape->note();
    WEFT_ASSIGN(opened.source,
                model_files::WithDraftHead(std::move(opened.source), own ? "" : head));
    if (!adapters.empty()) {
        WEFT_ASSIGN(opened.source,
                    model_files::AdaptedSource::Make(std::move(opened.source), adapters));
    }
    WEFT_ASSIGN(opened.walk, ModelWalk::Make(*opened.source, kv_dtype));
    return opened;
}

}  // namespace weft::plan
