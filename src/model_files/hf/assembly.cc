#include "model_files/hf/assembly.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "model_files/hf/draft_folder.h"
#include "model_files/hf/export.h"

namespace weft::model_files::hf {
namespace {

constexpr int64_t kMostExperts = 1 << 16;

// "[4, 8]".
std::string ShapeText(const std::vector<int64_t>& shape) {
    std::string text;
    for (const int64_t dim : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", dim);
    return "[" + text + "]";
}

// N for a name that begins with `begin` and "N."; else -1.
int64_t LayerOf(std::string_view name, std::string_view begin) {
    if (!name.starts_with(begin)) return -1;
    int64_t number = 0;
    size_t at = begin.size();
    for (; at < name.size() && name[at] >= '0' && name[at] <= '9' && number < 1 << 20; ++at) {
        number = number * 10 + (name[at] - '0');
    }
    return at > begin.size() && at < name.size() && name[at] == '.' ? number : -1;
}

bool IsPlain(SafeType type) {
    return type == SafeType::kF32 || type == SafeType::kF16 || type == SafeType::kBF16;
}

}  // namespace

Assembly::Assembly(std::string folder, const Family& family, const Config& config,
                   const Quantization& quantization, const TensorFiles& files)
    : folder_(std::move(folder)),
      family_(family),
      rules_(RulesOf(family)),
      config_(config),
      quantization_(quantization),
      files_(files),
      used_(files.tensors().size()) {}

Error Assembly::Missing(const std::string& name) const {
    return MakeError(ErrorCode::kCorrupt, "{}: tensor '{}' is missing", folder_, name);
}

Result<MatrixPtr> Assembly::Checked(Result<MatrixPtr> matrix, const std::string& name,
                                    int64_t rows) const {
    if (!matrix.ok()) return matrix;
    if (*matrix == nullptr) return Missing(name);
    if (rows == 0 || (*matrix)->rows() == rows) return matrix;
    return MakeError(ErrorCode::kCorrupt, "{}: '{}' has {}; expected {} from config.json", folder_,
                     name, (*matrix)->rows(), rows);
}

Status Assembly::AddPositions(const std::string& name, int64_t first) {
    WEFT_ASSIGN(MatrixPtr table, Checked(Tensor(name), name, 0));
    const int64_t rows = table->rows();
    if (rows <= first) return Missing(name);
    Add("position_embd.weight",
        SomeRows(std::move(table), first, rows - first, rows, rows - first));
    return {};
}

std::string Assembly::Beside(const std::string& prefix, std::string_view layers,
                             std::string_view name) {
    return prefix.substr(0, prefix.rfind(layers)) + std::string(name);
}

std::string Assembly::Block(int64_t layer, std::string_view name) {
    return fmt::format("blk.{}.{}", layer, name);
}

const SafeTensor* Assembly::Use(const std::string& name) {
    const SafeTensor* tensor = files_.Find(name);
    if (tensor != nullptr) used_[static_cast<size_t>(tensor - files_.tensors().data())] = true;
    return tensor;
}

void Assembly::Add(std::string gguf, MatrixPtr matrix, std::vector<int64_t> dims) {
    TensorInfo info{};
    info.name = std::move(gguf);
    info.dtype = matrix->dtype();
    info.cols = matrix->cols();
    info.rows = matrix->rows();
    if (dims.empty()) dims = {info.cols, info.rows};
    WEFT_CHECK(dims.size() <= info.dims.size());
    info.dim_count = static_cast<int>(dims.size());
    info.dims.fill(1);
    std::ranges::copy(dims, info.dims.begin());
    info.bytes = matrix->BytesOf(info.rows, info.cols);
    out_.tensors.push_back(std::move(info));
    out_.matrices.push_back(std::move(matrix));
}

void Assembly::AddExperts(int64_t layer, std::string_view part, MatrixPtr stack, int64_t experts) {
    const std::vector<int64_t> dims = {stack->cols(), stack->rows() / experts, experts};
    Add(Block(layer, fmt::format("{}_exps.weight", part)), std::move(stack), dims);
}

void Assembly::AddVector(std::string gguf, MatrixPtr column) {
    const int64_t size = column->rows();
    Add(std::move(gguf), AsVector(std::move(column)), {size});
}

Status Assembly::AddNumber(const std::string& key, const std::string& name) {
    WEFT_ASSIGN(const MatrixPtr column, Checked(Column(name), name, 1));
    std::vector<float>& numbers = out_.facts.numbers[key];
    return column->Read({0, 1, 0, 1},
                        std::as_writable_bytes(std::span(&numbers.emplace_back(), 1)));
}

void Assembly::AddScaled(const std::string& base, MatrixPtr matrix,
                         const std::vector<RowScale>& scales) {
    const bool changes =
        std::ranges::any_of(scales, [](const RowScale& some) { return some.scale != 1; });
    if (matrix->dtype() == DType::kF32 || !changes) {
        Add(base + ".weight", Scaled(std::move(matrix), scales));
        return;
    }
    Add(base + ".weight", std::move(matrix));
    std::vector<float> factors;
    for (const RowScale& some : scales) factors.push_back(some.scale);
    AddVector(base + ".scale", FromFloats(std::move(factors)));
}

Status Assembly::AddScaledLinear(const std::string& base, const std::string& module, int64_t rows,
                                 const std::vector<RowScale>& scales,
                                 std::vector<RowScale> of_bias) {
    WEFT_ASSIGN(MatrixPtr weight, Checked(Linear(module), module, rows));
    const bool folded = weight->dtype() == DType::kF32;
    AddScaled(base, std::move(weight), scales);
    WEFT_ASSIGN(MatrixPtr bias, Column(module + ".bias"));
    if (bias == nullptr) return {};
    for (size_t i = 0; i < of_bias.size() && !folded; ++i) {
        of_bias[i].scale /= scales[i].scale;  // BASE.scale multiplies the bias as well
    }
    AddVector(base + ".bias", Scaled(std::move(bias), std::move(of_bias)));
    return {};
}

// ---- Weights ------------------------------------------------------------------------------------

// The program that quantized a tensor, judged by its sibling tensors; empty: not known.
std::string_view Assembly::QuantizedBy(const std::string& name) const {
    const std::string base = name.substr(0, name.rfind('.'));
    if (Has(base + ".scales")) return "for Apple's MLX";
    for (const char* end : {".weight.absmax", ".SCB", ".weight_format"}) {
        if (Has(base + end)) return "by bitsandbytes";
    }
    return "";
}

Result<MatrixPtr> Assembly::OfTensor(const SafeTensor& tensor, int64_t rows, int64_t cols) {
    if (rows < 1 || cols < 1) {
        return MakeError(ErrorCode::kCorrupt, "{}: tensor '{}' is empty", folder_,
                         Shown(tensor.name));
    }
    const WeightFile& file = files_.file(tensor);
    if (tensor.type == SafeType::kF32) {
        return FromFile(file, tensor.offset, DType::kF32, rows, cols);
    }
    if (tensor.type == SafeType::kF16) {
        return FromFile(file, tensor.offset, DType::kF16, rows, cols);
    }
    if (tensor.type == SafeType::kBF16) {
        return FromFile(file, tensor.offset, DType::kBF16, rows, cols);
    }
    const std::string_view by = QuantizedBy(tensor.name);
    if (!by.empty()) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: tensor '{}' is quantized {}, a layout that is not supported. Get the "
                         "model's original folder, or a GGUF file",
                         folder_, Shown(tensor.name), by);
    }
    return MakeError(ErrorCode::kUnsupported,
                     "{}: tensor '{}' has dtype {}; expected F32, F16 or BF16", folder_,
                     Shown(tensor.name), SafeTypeName(tensor.type));
}

Result<MatrixPtr> Assembly::Tensor(const std::string& name) {
    const SafeTensor* tensor = Use(name);
    if (tensor == nullptr) return MatrixPtr();
    if (tensor->shape.empty()) return OfTensor(*tensor, 1, 1);
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < tensor->shape.size(); ++i) rows *= tensor->shape[i];
    return OfTensor(*tensor, rows, tensor->shape.back());
}

Result<MatrixPtr> Assembly::Column(const std::string& name, float add) {
    const SafeTensor* tensor = Use(name);
    if (tensor == nullptr) return MatrixPtr();
    int64_t size = 1;
    for (const int64_t dim : tensor->shape) size *= dim;
    WEFT_ASSIGN(MatrixPtr column, OfTensor(*tensor, size, 1));
    return Converted(std::move(column), DType::kF32, add);
}

Result<MatrixPtr> Assembly::Numbers(const std::string& name, int64_t below) {
    const SafeTensor* tensor = Use(name);
    if (tensor == nullptr) return MatrixPtr();
    WEFT_ASSIGN(const std::vector<int64_t> read, Integers(*tensor, 2));
    std::vector<int32_t> numbers;
    for (const int64_t number : read) {
        if (number < 0 || number >= below) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: tensor '{}' has the value {}; expected 0 to {}", folder_,
                             Shown(name), number, below - 1);
        }
        numbers.push_back(static_cast<int32_t>(number));
    }
    return FromInts(std::move(numbers), tensor->shape[1]);
}

Result<std::vector<int64_t>> Assembly::Integers(const SafeTensor& tensor, size_t dims) const {
    const bool wide = tensor.type == SafeType::kI64;
    if ((!wide && tensor.type != SafeType::kI32) || tensor.shape.size() != dims ||
        tensor.bytes == 0) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: tensor '{}' has dtype {} and shape {}; expected I32 or I64 with {}",
                         folder_, Shown(tensor.name), SafeTypeName(tensor.type),
                         ShapeText(tensor.shape), dims == 1 ? "one dim" : "two dims");
    }
    std::vector<std::byte> raw(tensor.bytes);
    WEFT_TRY(files_.file(tensor).ReadAt(tensor.offset, raw));
    const size_t size = wide ? sizeof(int64_t) : sizeof(int32_t);
    std::vector<int64_t> numbers;
    for (size_t at = 0; at < raw.size(); at += size) {
        int64_t number = 0;  // (Weft assumes a little-endian host everywhere.)
        int32_t narrow = 0;
        std::memcpy(wide ? static_cast<void*>(&number) : &narrow, raw.data() + at, size);
        numbers.push_back(wide ? number : narrow);
    }
    return numbers;
}

std::pair<int64_t, int64_t> Assembly::ScaleBlock(const std::string& module) const {
    const Scheme* scheme = quantization_.Of(module);
    if (scheme == nullptr) return {0, 0};
    return {scheme->block_rows, scheme->block_cols};
}

Result<MatrixPtr> Assembly::Linear(const std::string& module, int64_t pieces, bool exact) {
    LinearParts parts =
        FindLinearParts([&](const std::string& name) { return Use(module + "." + name); });
    parts.pieces = pieces;
    parts.exact = exact;
    if (!HasLinear(module)) return MatrixPtr();
    const SafeTensor* weight = parts.weight;
    // bitsandbytes may store its codes in a tensor declared as floats.
    const bool plain = weight != nullptr && weight->type != SafeType::kF8E4M3 &&
                       parts.packed == nullptr && parts.qweight == nullptr &&
                       (quantization_.method == Method::kNone ||
                        (parts.absmax == nullptr && IsPlain(weight->type)));
    if (plain) {
        const std::vector<int64_t>& shape = weight->shape;
        if (pieces > 1 && shape.size() == 3 && shape[0] == pieces) {
            return OfTensor(*weight, shape[0] * shape[1], shape[2]);
        }
        if (shape.size() != 2) {
            return MakeError(ErrorCode::kCorrupt, "{}: tensor '{}' has shape {}; expected two dims",
                             folder_, Shown(weight->name), ShapeText(weight->shape));
        }
        return OfTensor(*weight, shape[0], shape[1]);
    }
    return Packed(module, parts);
}

Result<MatrixPtr> Assembly::Packed(const std::string& module, const LinearParts& parts) {
    if (const Scheme* scheme = quantization_.Of(module)) {
        return PackedLinear(parts, *scheme, files_, module, folder_);
    }
    return MakeError(ErrorCode::kCorrupt,
                     "{}: '{}' is quantized, but no target in config.json's config_groups matches "
                     "it",
                     folder_, Shown(module));
}

Result<MatrixPtr> Assembly::Mxfp4(const std::string& name) {
    const SafeTensor* blocks = Use(name + "_blocks");
    const SafeTensor* scales = Use(name + "_scales");
    if (blocks == nullptr && scales == nullptr) return MatrixPtr();
    if (blocks == nullptr || scales == nullptr) {
        return MakeError(ErrorCode::kCorrupt, "{}: '{}' has only {} of its two tensors", folder_,
                         Shown(name), blocks == nullptr ? "scales" : "blocks");
    }
    return Mxfp4Experts(*blocks, *scales, files_, folder_);
}

Result<int64_t> Assembly::ExpertCount() const {
    return config_.NeedInt({"num_local_experts", "num_experts", "n_routed_experts"}, 1,
                           kMostExperts);
}

Result<MatrixPtr> Assembly::Joined(std::vector<MatrixPtr> parts, const std::string& what) const {
    for (const MatrixPtr& part : parts) {
        if (part->dtype() == parts[0]->dtype() && part->cols() == parts[0]->cols()) continue;
        return MakeError(ErrorCode::kCorrupt, "{}: the tensors of '{}' differ in type or columns",
                         folder_, Shown(what));
    }
    return Stacked(std::move(parts));
}

// The experts of mlx-lm: one tensor for all, "switch_mlp" instead of "experts.N".
Result<MatrixPtr> Assembly::StackedExperts(const std::string& pattern, int64_t count) {
    const std::string_view numbered = "experts.*";
    const size_t at = pattern.find(numbered);
    if (quantization_.method != Method::kMlx || at == pattern.npos) return MatrixPtr();
    std::string module = pattern;
    module.replace(at, numbered.size(), "switch_mlp");
    WEFT_ASSIGN(MatrixPtr stack, Linear(module));
    if (stack == nullptr || stack->rows() % count == 0) return stack;
    return MakeError(ErrorCode::kCorrupt, "{}: '{}' has {} rows; expected a multiple of {} experts",
                     folder_, Shown(module), stack->rows(), count);
}

Result<MatrixPtr> Assembly::Experts(const std::string& pattern, int64_t count) {
    const size_t star = pattern.find('*');
    WEFT_CHECK(star != pattern.npos);
    std::vector<MatrixPtr> parts;
    for (int64_t expert = 0; expert < count; ++expert) {
        std::string module = pattern;
        module.replace(star, 1, std::to_string(expert));
        WEFT_ASSIGN(MatrixPtr part, Linear(module));
        if (part == nullptr && expert == 0) return StackedExperts(pattern, count);
        if (part == nullptr) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: '{}' is missing; expected {} experts from config.json", folder_,
                             Shown(module), count);
        }
        if (!parts.empty() &&
            (part->dtype() != parts[0]->dtype() || part->rows() != parts[0]->rows() ||
             part->cols() != parts[0]->cols())) {
            return MakeError(ErrorCode::kCorrupt, "{}: '{}' differs from expert 0 in type or shape",
                             folder_, Shown(module));
        }
        parts.push_back(std::move(part));
    }
    return Stacked(std::move(parts));
}

// ---- Rules --------------------------------------------------------------------------------------

// (With latent attention, head_dim_ is the number of rotated dims.)
Result<MatrixPtr> Assembly::InPairs(MatrixPtr matrix, const std::string& name, Form form) {
    if (matrix == nullptr || !pairs_) return matrix;
    const bool latent = latent_unrotated_ > 0 && form == Form::kKey;
    const int64_t first = latent ? matrix->rows() - head_dim_ : latent_unrotated_;
    const int64_t size = first + head_dim_;
    if (head_dim_ % 2 == 0 && first >= 0 && matrix->rows() % size == 0) {
        return HalvesToPairs(std::move(matrix), size, first);
    }
    return MakeError(ErrorCode::kCorrupt, "{}: '{}' has {} rows; expected whole heads of {} rows",
                     folder_, Shown(name), matrix->rows(), size);
}

Status Assembly::AddRule(int64_t layer, const std::string& prefix,
                         const RuleOf<std::string>& rule) {
    if (rule.form == Form::kNamed) return {};
    std::string module = prefix + rule.hf;
    if (const size_t at = module.find('#'); at != module.npos) {
        module.replace(at, 1, fmt::format("{}", layer % family_.sublayers));
    }
    const std::string gguf = Block(layer, rule.gguf);
    const auto missing = [&](const std::string& name) -> Status {
        if (!rule.needed) return {};
        return MakeError(ErrorCode::kCorrupt, "{}: tensor '{}' is missing; a {} model needs it",
                         folder_, name, family_.model_type);
    };
    if (rule.form == Form::kNorm || rule.form == Form::kVector) {
        const bool norm = rule.form == Form::kNorm;
        const std::string name = norm ? module + ".weight" : module;
        WEFT_ASSIGN(MatrixPtr column, Column(name, norm ? family_.norm_add : 0));
        if (column == nullptr) return missing(name);
        AddVector(norm ? gguf + ".weight" : gguf, std::move(column));
        WEFT_ASSIGN(MatrixPtr bias, norm ? Column(module + ".bias") : MatrixPtr());
        if (bias != nullptr) AddVector(gguf + ".bias", std::move(bias));
        return {};
    }
    if (rule.form == Form::kExperts) {
        WEFT_ASSIGN(const int64_t count, ExpertCount());
        WEFT_ASSIGN(MatrixPtr stack, Experts(module, count));
        if (stack == nullptr) return missing(module);
        const std::vector<int64_t> dims = {stack->cols(), stack->rows() / count, count};
        Add(gguf + ".weight", std::move(stack), dims);
        return {};
    }
    const bool heads = rule.form == Form::kQuery || rule.form == Form::kKey;
    WEFT_ASSIGN(MatrixPtr weight, Linear(module, 1, rule.form == Form::kRouter));
    if (weight == nullptr) return missing(module + ".weight");
    if (heads) {
        WEFT_ASSIGN(weight, InPairs(std::move(weight), module, rule.form));
    }
    if (rule.form == Form::kRouter) weight = Converted(std::move(weight), DType::kF32);
    // (Quantized, the layer is stored as any other, [out, in].)
    const SafeTensor* plain = rule.form == Form::kTurned ? Find(module + ".weight") : nullptr;
    if (plain != nullptr && IsPlain(plain->type) && !Has(module + ".weight.absmax")) {
        const int64_t rows = weight->rows();
        weight = Transposed(std::move(weight), rows);
    }
    Add(gguf + ".weight", std::move(weight));
    WEFT_ASSIGN(MatrixPtr bias, Column(module + ".bias"));
    if (bias == nullptr) return {};
    if (heads) {
        WEFT_ASSIGN(bias, InPairs(std::move(bias), module + ".bias", rule.form));
    }
    AddVector(gguf + ".bias", std::move(bias));
    return {};
}

Status Assembly::AddRows(int64_t layer, std::string_view gguf, const std::string& module,
                         const RowRuns& rows, bool pairs) {
    for (const bool bias : {false, true}) {
        WEFT_ASSIGN(MatrixPtr all, bias ? Column(module + ".bias") : Linear(module));
        if (all == nullptr && bias) return {};
        if (all == nullptr) return Missing(module + ".weight");
        if (all->rows() % rows.stride != 0) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: '{}' has {} rows; expected a multiple of {} (config.json)",
                             folder_, module, all->rows(), rows.stride);
        }
        const int64_t count = all->rows() / rows.stride * rows.count;
        MatrixPtr part = SomeRows(std::move(all), rows.first, rows.count, rows.stride, count);
        if (pairs) {
            WEFT_ASSIGN(part, InPairs(std::move(part), module, Form::kQuery));
        }
        const std::string name = Block(layer, gguf);
        if (bias) {
            AddVector(name + ".bias", std::move(part));
        } else {
            Add(name + ".weight", std::move(part));
        }
    }
    return {};
}

Status Assembly::SplitQkv(int64_t layer, const std::string& module) {
    WEFT_ASSIGN(const int64_t heads, config_.NeedInt({"num_attention_heads"}, 1, 4096));
    WEFT_ASSIGN(const int64_t kv, config_.IntOr({"num_key_value_heads"}, 1, heads, heads));
    const auto rows = RowsOf(family_.qkv.order, heads, kv, head_dim_);
    if (!rows.has_value()) {
        return config_.Corrupt(
            "num_attention_heads",
            fmt::format("heads of {} rows that {} KV heads can share", head_dim_, kv));
    }
    WEFT_TRY(AddRows(layer, "attn_q", module, rows->q, true));
    WEFT_TRY(AddRows(layer, "attn_k", module, rows->k, true));
    return AddRows(layer, "attn_v", module, rows->v, false);
}

Status Assembly::AddHeadNorms(int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const bool normed, config_.BoolOr({"qk_layernorm"}, false));
    if (!normed) return {};
    WEFT_ASSIGN(const int64_t heads, config_.NeedInt({"num_attention_heads"}, 1, 4096));
    WEFT_ASSIGN(const int64_t kv, config_.NeedInt({"num_key_value_heads"}, 1, heads));
    for (const std::string part : {".weight", ".bias"}) {
        for (const auto& [gguf, module, count] : {std::tuple{"attn_q_norm", "q_layernorm", heads},
                                                  std::tuple{"attn_k_norm", "k_layernorm", kv}}) {
            const std::string name = prefix + module + part;
            std::vector<MatrixPtr> all;
            for (int64_t head = 0; head < count; ++head) {
                WEFT_ASSIGN(MatrixPtr one, Checked(Column(name), name, head_dim_));
                all.push_back(AsVector(std::move(one)));
            }
            Add(Block(layer, gguf + part), Stacked(std::move(all)));
        }
    }
    return {};
}

// All experts in one tensor, as [experts * rows, cols]; nullptr: the model has no such tensor.
// rows: per expert; used to recognize transposed tensors.
Result<MatrixPtr> Assembly::FusedExperts(const std::string& name, int64_t experts, int64_t rows) {
    const SafeTensor* tensor = files_.Find(name);
    const bool packed =
        tensor != nullptr && quantization_.method != Method::kNone && !IsPlain(tensor->type);
    if (packed) return PackedExperts(*tensor, experts, rows);
    WEFT_ASSIGN(MatrixPtr matrix, Tensor(name));
    if (matrix == nullptr || !family_.turned_experts || tensor->shape.size() != 3) return matrix;
    if (tensor->shape[1] == rows) return matrix;
    if (tensor->shape[0] == experts && tensor->shape[2] == rows) {
        return Transposed(std::move(matrix), tensor->shape[1]);
    }
    return MakeError(ErrorCode::kCorrupt, "{}: '{}' has shape {}; expected {} experts of {} rows",
                     folder_, name, ShapeText(tensor->shape), experts, rows);
}

// As FusedExperts, for FP8 and NVFP4. The scales are separate tensors: NAME_scale_inv or
// NAME_scale; with ModelOpt, NAME_weight_scale and NAME_weight_scale_2.
Result<MatrixPtr> Assembly::PackedExperts(const SafeTensor& tensor, int64_t experts, int64_t rows) {
    const std::string& name = tensor.name;
    if (family_.turned_experts && tensor.shape.size() == 3 && tensor.shape[1] != rows) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: '{}' has shape {}; expected [experts, {}, columns] for quantized "
                         "experts",
                         folder_, Shown(name), ShapeText(tensor.shape), rows);
    }
    LinearParts parts{};
    parts.weight = Use(name);
    parts.scale_inv = Use(name + "_scale_inv");
    const SafeTensor* scale = Use(name + "_scale");
    const SafeTensor* weight_scale = Use(name + "_weight_scale");
    if (scale != nullptr && weight_scale != nullptr) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: '{}' has both a _scale and a _weight_scale; expected one of them",
                         folder_, Shown(name));
    }
    parts.scale = scale != nullptr ? scale : weight_scale;
    parts.scale_2 = Use(name + "_weight_scale_2");
    parts.pieces = experts;
    for (const char* of_activations : {"_input_scale", "_activation_scale"}) {
        Use(name + of_activations);
    }
    return Packed(name, parts);
}

// All experts in one tensor, gate before up: [experts, 2 ffn, hidden] and [experts, hidden, ffn].
Status Assembly::AddFusedExperts(int64_t layer, const std::string& name, const std::string& last) {
    WEFT_ASSIGN(const int64_t experts, ExpertCount());
    for (const int64_t half : {0, 1}) {
        WEFT_ASSIGN(const int64_t ffn, config_.IntOr({"moe_intermediate_size"}, 1, 1 << 20, 1));
        WEFT_ASSIGN(MatrixPtr both, FusedExperts(name, experts, 2 * ffn));
        const int64_t rows = both->rows() / (2 * experts);
        if (rows < 1 || both->rows() != 2 * rows * experts) {
            return MakeError(ErrorCode::kCorrupt, "{}: '{}' has {} rows; expected 2 x {} x ffn",
                             folder_, name, both->rows(), experts);
        }
        const std::vector<int64_t> dims = {both->cols(), rows, experts};
        Add(Block(layer, half == 0 ? "ffn_gate_exps.weight" : "ffn_up_exps.weight"),
            SomeRows(std::move(both), half * rows, rows, 2 * rows, rows * experts), dims);
    }
    WEFT_ASSIGN(const int64_t hidden, config_.NeedInt({"hidden_size"}, 1, 1 << 20));
    WEFT_ASSIGN(MatrixPtr down, FusedExperts(last, experts, hidden));
    if (down == nullptr || down->rows() % experts != 0) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: '{}' is missing, or its rows are not those of {} experts", folder_,
                         last, experts);
    }
    const std::vector<int64_t> dims = {down->cols(), down->rows() / experts, experts};
    Add(Block(layer, "ffn_down_exps.weight"), std::move(down), dims);
    return {};
}

Status Assembly::AddLayer(int64_t layer, const std::string& prefix) {
    for (const RuleOf<std::string>& rule : rules_) WEFT_TRY(AddRule(layer, prefix, rule));
    if (!family_.qkv.module.empty()) {
        WEFT_TRY(SplitQkv(layer, prefix + std::string(family_.qkv.module)));
    }
    if (family_.layer != nullptr) WEFT_TRY(family_.layer(*this, layer, prefix));
    constexpr std::pair<const char*, const char*> kFused[] = {
        {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"},
        {"block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.down_proj"},
        {"block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight"},
        {"experts.gate_up_proj", "experts.down_proj"}};
    for (const auto& [first, last] : kFused) {
        const SafeTensor* fused = files_.Find(prefix + first);
        if (fused == nullptr || used_[static_cast<size_t>(fused - files_.tensors().data())]) {
            continue;
        }
        WEFT_TRY(AddFusedExperts(layer, prefix + first, prefix + last));
    }
    return {};
}

// ---- The head of multi-token prediction (model/draft_head.h) ------------------------------------

// The head's own embedding or output matrix; without it, the head uses the model's.
Status Assembly::AddOwnEnd(std::string_view gguf, const std::string& name) {
    WEFT_ASSIGN(MatrixPtr own, Linear(name));
    if (own != nullptr) Add(Block(layers_, gguf), std::move(own));
    return {};
}

// layer: the prefix of the head's layer.
Status Assembly::AddDraftHead(const DraftHeadNames& names, const std::string& layer) {
    const std::string own = names.apart ? std::string(names.prefix) : layer;
    const auto vector = [&](std::string_view gguf, std::string_view hf) -> Status {
        const std::string name = fmt::format("{}{}.weight", own, hf);
        WEFT_ASSIGN(MatrixPtr column, Column(name, family_.norm_add));
        if (column == nullptr) return Missing(name);
        AddVector(Block(layers_, gguf), std::move(column));
        return {};
    };
    WEFT_TRY(AddLayer(layers_, layer));
    WEFT_ASSIGN(MatrixPtr both, Linear(own + std::string(names.both)));
    if (both == nullptr) {
        return MakeError(ErrorCode::kCorrupt, "{}: '{}{}' is missing", folder_, own, names.both);
    }
    Add(Block(layers_, "nextn.eh_proj.weight"), std::move(both));
    WEFT_TRY(vector("nextn.enorm.weight", names.token_norm));
    WEFT_TRY(vector("nextn.hnorm.weight", names.hidden_norm));
    WEFT_TRY(vector("nextn.shared_head_norm.weight", names.last_norm));
    WEFT_TRY(AddOwnEnd("nextn.embed_tokens.weight", own + "embed_tokens"));
    return AddOwnEnd("nextn.shared_head_head.weight", own + std::string(names.output));
}

// A model runs without its draft head, so a head that cannot be read is left out.
Status Assembly::FindDraftHead() {
    const bool dspark = std::ranges::any_of(files_.tensors(), [](const SafeTensor& tensor) {
        return tensor.name.starts_with("mtp_dspark.");
    });
    if (dspark) {
        out_.facts.draft_fault =
            "its tensors mtp_dspark.* are a DSpark head, which Weft does not read";
    }
    if (family_.draft_head == nullptr) return {};
    const DraftHeadNames& names = *family_.draft_head;
    const std::string layer = names.prefix.empty() ? fmt::format("{}{}.", layers_prefix_, layers_)
                                                   : std::string(names.prefix) + "layers.0.";
    const std::string own = names.apart ? std::string(names.prefix) : layer;
    if (!HasLinear(own + std::string(names.both))) return {};
    const size_t before = out_.tensors.size();
    const Status added = AddDraftHead(names, layer);
    if (added.ok()) {
        out_.facts.draft_heads = 1;
        return {};
    }
    const ErrorCode code = added.error().code;
    if (code == ErrorCode::kIo || code == ErrorCode::kNotFound) return added;
    out_.facts.draft_fault = added.error().message;
    out_.tensors.resize(before);
    out_.matrices.resize(before);
    return {};
}

// ---- The whole ----------------------------------------------------------------------------------

Status Assembly::FindPrefix() {
    constexpr std::string_view kPrefixes[] = {"model.",
                                              "model.language_model.",
                                              "language_model.model.",
                                              "language_model.",
                                              "backbone.",
                                              "transformer.",
                                              "gpt_neox.",
                                              "gpt_neox_japanese.",
                                              "model.decoder.",
                                              "decoder.",
                                              "biogpt.",
                                              "model.text_model.",
                                              "bert.",
                                              "roberta.",
                                              "distilbert.",
                                              ""};
    for (const std::string_view name : {family_.embedding, family_.saved_embedding}) {
        for (const std::string_view prefix : kPrefixes) {
            const std::string module = std::string(prefix) + std::string(name);
            if (!HasLinear(module)) continue;
            prefix_ = prefix;
            layers_prefix_ = fmt::format("{}{}.", prefix_, family_.layers);
            embedding_ = module;
            return {};
        }
    }
    if (config_.Has("vision_config")) {
        WEFT_ASSIGN(const std::string type, config_.StringOr({"model_type"}, "?"));
        return MakeError(ErrorCode::kUnsupported,
                         "{}: model_type '{}' is a vision-language model, which Weft cannot read "
                         "from a folder. Get it as a GGUF file, or use a text model",
                         folder_, Shown(type));
    }
    return MakeError(ErrorCode::kCorrupt,
                     "{}: tensor 'model.{}.weight' is missing. Is it a language model?", folder_,
                     family_.embedding);
}

namespace {

// Whether two matrices have the same bytes.
Result<bool> AreAlike(const Matrix& a, const Matrix& b) {
    constexpr size_t kReadBytes = 4 << 20;
    if (a.dtype() != b.dtype() || a.rows() != b.rows() || a.cols() != b.cols()) return false;
    const auto most =
        static_cast<int64_t>(std::max<size_t>(1, kReadBytes / a.BytesOf(1, a.cols())));
    std::vector<std::byte> of_a, of_b;
    Status missing;  // (a shard's plan learns all ranges at once)
    for (int64_t row = 0, rows = 1; row < a.rows(); row += rows) {
        rows = row == 0 ? 1 : std::min(most, a.rows() - row);
        of_a.resize(a.BytesOf(rows, a.cols()));
        of_b.resize(of_a.size());
        Status read = a.Read({row, rows, 0, a.cols()}, of_a);
        Status other = b.Read({row, rows, 0, a.cols()}, of_b);
        if (read.ok()) read = std::move(other);
        if (!read.ok() && (row == 0 || read.error().code != ErrorCode::kNotFound))
            return read.error();
        if (!read.ok()) missing = std::move(read);
        if (missing.ok() && of_a != of_b) return false;
    }
    if (!missing.ok()) return missing.error();
    return true;
}

}  // namespace

// If the file has an output matrix that differs from the embedding, the two are not tied, whatever
// config.json says (as in transformers).
Result<bool> Assembly::IsHeadTied(const MatrixPtr& head, const std::string& embedding) {
    WEFT_ASSIGN(const bool tied, config_.BoolOr({"tie_word_embeddings"}, false));
    if (!tied || head == nullptr) return tied;
    WEFT_ASSIGN(const MatrixPtr table, Linear(embedding));
    return AreAlike(*head, *table);
}

Status Assembly::AddEnds() {
    EndScales scales;
    if (family_.ends != nullptr) {
        WEFT_ASSIGN(scales, family_.ends(config_));
    }
    const auto add = [&](const char* base, MatrixPtr matrix, double scale) {
        const int64_t rows = matrix->rows();
        AddScaled(base, std::move(matrix), {{rows, static_cast<float>(scale)}});
    };
    const std::string& embedding = embedding_;
    const std::string last = prefix_ + std::string(family_.final_norm);
    const std::string final_norm = last + ".weight";
    WEFT_ASSIGN(MatrixPtr table, Linear(embedding));
    const bool folded = table->dtype() == DType::kF32;
    add("token_embd", std::move(table), scales.embedding);
    const float shift = family_.plain_final_norm ? 0 : family_.norm_add;
    WEFT_ASSIGN(MatrixPtr norm, Column(final_norm, shift));
    const bool normed = !family_.final_norm.empty() && !family_.plain_norms;
    if (norm == nullptr && normed) return Missing(final_norm);
    if (norm != nullptr) AddVector(std::string(family_.gguf_final_norm), std::move(norm));
    WEFT_ASSIGN(MatrixPtr norm_bias, Column(last + ".bias"));
    if (norm_bias != nullptr) AddVector("output_norm.bias", std::move(norm_bias));
    if (family_.encoder) return AddEncoderHead();
    bool tied = true, found = false;
    for (const std::string name : OutputNames()) {
        WEFT_ASSIGN(MatrixPtr head, Linear(name));
        WEFT_ASSIGN(const bool same, IsHeadTied(head, embedding));
        tied = tied && same;
        found = found || head != nullptr;
        if (head != nullptr && !same) add("output", std::move(head), scales.output);
        WEFT_ASSIGN(MatrixPtr bias, Column(name + ".bias"));
        if (bias != nullptr) AddVector("output.bias", std::move(bias));
    }
    WEFT_ASSIGN(const bool scores, AddScoreHead());
    if (!tied && !found && !scores) WEFT_TRY(CheckMissingHead());
    const bool alike = scales.embedding == scales.output && (folded || scales.output == 1);
    if ((!tied && found) || alike) return {};
    if (!folded) {  // one table for both, with a separate factor for the output
        AddVector("output.scale", FromFloats({static_cast<float>(scales.output)}));
        return {};
    }
    WEFT_ASSIGN(MatrixPtr head, Linear(embedding));
    add("output", std::move(head), scales.output);
    return {};
}

// The matrix of a model "...ForSequenceClassification" (score_head.h).
Result<bool> Assembly::AddScoreHead() {
    WEFT_ASSIGN(MatrixPtr matrix, Linear("score"));
    WEFT_ASSIGN(MatrixPtr bias, Column("score.bias"));
    if (bias != nullptr) AddVector("cls.output.bias", std::move(bias));
    if (matrix == nullptr) return false;
    Add("cls.output.weight", std::move(matrix));
    return true;
}

// An encoder's classifier has up to two matrices. The first of BERT's is the pooler.
Status Assembly::AddEncoderHead() {
    constexpr std::pair<const char*, const char*> kHeads[] = {
        {"classifier.dense", "classifier.out_proj"},  // RoBERTa
        {"head.dense", "classifier"},                 // ModernBERT
        {"pooler.dense", "classifier"}};
    for (const auto& [first, last] : kHeads) {
        const bool pools = first == std::string_view("pooler.dense");
        const std::string dense = (pools ? prefix_ : "") + first;
        WEFT_ASSIGN(MatrixPtr weight, Linear(dense));
        WEFT_ASSIGN(MatrixPtr bias, Column(dense + ".bias"));
        WEFT_ASSIGN(MatrixPtr output, Linear(last));
        if (output == nullptr || weight == nullptr) continue;
        Add("cls.weight", std::move(weight));
        if (bias != nullptr) AddVector("cls.bias", std::move(bias));
        WEFT_ASSIGN(MatrixPtr norm, Column("head.norm.weight"));
        if (norm != nullptr) AddVector("cls.norm.weight", std::move(norm));
        WEFT_ASSIGN(MatrixPtr shift, Column("head.norm.bias"));
        if (shift != nullptr) AddVector("cls.norm.bias", std::move(shift));
        Add("cls.output.weight", std::move(output));
        WEFT_ASSIGN(MatrixPtr output_bias, Column(std::string(last) + ".bias"));
        if (output_bias != nullptr) AddVector("cls.output.bias", std::move(output_bias));
        return {};
    }
    if (!HasLinear("classifier")) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "{}: tensor 'classifier.weight' without 'pooler.dense' or 'head.dense' is not "
                     "supported",
                     folder_);
}

// An untied folder without an output matrix is an embedding model, whose tensors have no prefix, or
// is incomplete.
Status Assembly::CheckMissingHead() const {
    WEFT_ASSIGN(const bool tied, config_.BoolOr({"whole_tie_word_embeddings"}, false));
    if (prefix_.empty() || tied) return {};
    WEFT_ASSIGN(const std::vector<std::string> classes, config_.Strings({"architectures"}));
    if (!classes.empty() && classes[0].ends_with("ForSequenceClassification")) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: tensor 'score.weight' is missing, which {} has. Is the download "
                         "complete?",
                         folder_, Shown(classes[0]));
    }
    return MakeError(ErrorCode::kCorrupt,
                     "{}: tensor 'lm_head.weight' is missing, but config.json has "
                     "tie_word_embeddings: false. Is the download complete?",
                     folder_);
}

Status Assembly::AddRopeFactors() {
    WEFT_ASSIGN(std::vector<RopeVector> vectors, RopeVectors(config_));
    for (RopeVector& vector : vectors) {
        AddVector(vector.tensor, FromFloats(std::move(vector.factors)));
    }
    return {};
}

// Tensors that the forward pass does not need: precomputed RoPE, other modalities, copies of the
// model's tensors in a draft head, scales of a quantized KV cache or of activations.
// Whether a layer behind the model's belongs to a draft head: config.json's number or its tensors
// say so.
bool Assembly::IsDraftLayer(int64_t layer) const {
    const auto heads = PublishedDraftHeads(config_, family_);
    if (heads.ok() && layer < layers_ + *heads) return true;
    const std::string own = fmt::format("{}{}.", layers_prefix_, layer);
    return std::ranges::any_of(files_.tensors(), [&](const auto& tensor) {
        if (!tensor.name.starts_with(own)) return false;
        const std::string_view rest = std::string_view(tensor.name).substr(own.size());
        return rest.starts_with("eh_proj.") || rest.starts_with("enorm.") ||
               rest.starts_with("hnorm.");
    });
}

bool Assembly::Unneeded(const std::string& name) const {
    const int64_t layer = LayerOf(name, layers_prefix_);
    if (layer >= layers_) return IsDraftLayer(layer);
    constexpr std::array<std::string_view, 22> kBegins = {"vision_tower.",
                                                          "vision_model.",
                                                          "multi_modal_projector.",
                                                          "mm_projector.",
                                                          "visual.",
                                                          "mtp.",
                                                          "mtp_dspark.",
                                                          "vision_encoder.",
                                                          "vision_language_adapter.",
                                                          "patch_merger.",
                                                          "pre_mm_projector_norm.",
                                                          "model.vision_tower.",
                                                          "model.multi_modal_projector.",
                                                          "model.mm_projector.",
                                                          "model.visual.",
                                                          "model.mtp.",
                                                          "model.mtp_",
                                                          "model.vision_adapter.",
                                                          "model.vision_projection.",
                                                          "model.embed_vision.",
                                                          "model.audio_tower.",
                                                          "model.embed_audio."};
    constexpr std::array<std::string_view, 19> kEnds = {".rotary_emb.inv_freq",
                                                        ".embed_positions.weights",  // of sines
                                                        ".attn.bias",                // a mask
                                                        ".attention.bias",
                                                        ".causal_mask",
                                                        ".k_scale",
                                                        ".v_scale",
                                                        ".q_scale",
                                                        ".kv_scale",
                                                        ".input_scale",
                                                        ".activation_scale",
                                                        ".masked_bias",
                                                        ".input_global_scale",
                                                        ".input_zero_point",
                                                        ".k_zero_point",
                                                        ".v_zero_point",
                                                        ".output_scale",
                                                        ".position_ids",  // 0, 1, 2, ...
                                                        ".token_type_ids"};
    const auto begins = [&](std::string_view begin) { return name.starts_with(begin); };
    constexpr std::string_view kHeads[] = {"cls.", "lm_head.", "vocab_", "head.", "decoder."};
    if (family_.encoder && std::ranges::any_of(kHeads, begins)) return true;
    const auto ends = [&](std::string_view end) { return name.ends_with(end); };
    if (std::ranges::any_of(kBegins, begins) || std::ranges::any_of(kEnds, ends)) return true;
    // In multimodal models: tensors outside the text part ("model.image_newline").
    const bool several = config_.Has("vision_config") || config_.Has("audio_config");
    return several && !begins(prefix_) && name.find("lm_head") == name.npos;
}

Status Assembly::CheckAllUsed() const {
    for (size_t i = 0; i < used_.size(); ++i) {
        const std::string& name = files_.tensors()[i].name;
        if (used_[i] || Unneeded(name)) continue;
        if (const int64_t layer = LayerOf(name, layers_prefix_); layer >= layers_) {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: config.json has num_hidden_layers {}, but '{}' is of layer {}, "
                             "and without it the results would be wrong",
                             folder_, layers_, Shown(name), layer);
        }
        return MakeError(ErrorCode::kUnsupported,
                         "{}: tensor '{}' is not supported in a {} model, and without it the "
                         "results would be wrong",
                         folder_, Shown(name), family_.model_type);
    }
    return {};
}

Result<Assembled> Assembly::Run() && {
    WEFT_ASSIGN(layers_, config_.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(head_dim_, HeadDim(config_));
    pairs_ = family_.pairs;
    WEFT_ASSIGN(const bool neighbours, config_.BoolOr({"rope_interleave"}, true));
    if (!neighbours && config_.Has("kv_lora_rank")) {
        WEFT_ASSIGN(latent_unrotated_, config_.NeedInt({"qk_nope_head_dim"}, 1, 1 << 20));
        pairs_ = true;
    }
    if (IsHeadFamily(family_)) {
        WEFT_TRY(AddSeparateHead());
        WEFT_TRY(CheckAllUsed());
        return std::move(out_);
    }
    WEFT_TRY(FindPrefix());
    WEFT_TRY(AddEnds());
    WEFT_TRY(AddRopeFactors());
    for (int64_t layer = 0; layer < layers_; ++layer) {
        const int64_t of_folder = layer / family_.sublayers;
        WEFT_TRY(AddLayer(layer, fmt::format("{}{}.", layers_prefix_, of_folder)));
    }
    WEFT_TRY(FindDraftHead());
    WEFT_TRY(CheckAllUsed());
    return std::move(out_);
}

}  // namespace weft::model_files::hf
