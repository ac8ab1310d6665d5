#include "model_files/lora/merged_folder.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "model_files/hf/json.h"
#include "model_files/hf/safetensors.h"

namespace weft::model_files {
namespace {

using hf::SafeTensor;
using hf::SafeType;

bool IsFloat(SafeType type) {
    return type == SafeType::kF32 || type == SafeType::kF16 || type == SafeType::kBF16;
}

// A tensor of other numbers has its bytes as columns.
TensorInfo InfoOf(const SafeTensor& tensor) {
    TensorInfo info{};
    info.name = tensor.name;
    info.dtype = tensor.type == SafeType::kF16    ? DType::kF16
                 : tensor.type == SafeType::kBF16 ? DType::kBF16
                                                  : DType::kF32;
    info.cols = tensor.shape.empty() ? 1 : tensor.shape.back();
    info.rows = 1;
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) info.rows *= tensor.shape[i];
    if (!IsFloat(tensor.type)) info.cols *= static_cast<int64_t>(hf::SafeTypeBytes(tensor.type));
    info.dim_count = tensor.shape.size() > 1 ? 2 : 1;
    info.dims = {info.cols, info.rows, 1, 1};
    info.bytes = tensor.bytes;
    return info;
}

}  // namespace

// The tensors of a folder, under their own names.
class FolderTensors final : public ModelSource {
  public:
    FolderTensors(const ModelSource& model, hf::TensorFiles files)
        : model_(model), files_(std::move(files)) {
        for (const SafeTensor& tensor : files_.tensors()) Add(tensor);
    }

    // Adds a tensor that the files lack: the caller states its source.
    void Add(SafeTensor tensor) {
        tensors_.push_back(InfoOf(tensor));
        index_.emplace(tensor.name, saved_.size());
        saved_.push_back(std::move(tensor));
    }
    const std::vector<SafeTensor>& saved() const { return saved_; }
    hf::ExportBytes Bytes(size_t index) const {
        const SafeTensor& tensor = saved()[index];
        return {tensor.type, &files_.file(tensor), tensor.offset};
    }

    // Gives a tensor the values of the merged model's tensor: its rows from row_begin on, or, if
    // the folder has the tensor turned, its columns.
    void TakeFrom(const hf::ExportTensor& from, size_t index) {
        TensorInfo& tensor = tensors_[index];
        tensor.dtype = from.from->dtype;
        tensor.bytes = static_cast<uint64_t>(tensor.rows * RowBytes(tensor.dtype, tensor.cols));
        taken_[index] = from;
    }
    bool IsTaken(size_t index) const { return taken_.contains(index); }
    void SetUntied() { untied_ = true; }
    // Whether the merged model has an output matrix beside its embedding.
    bool untied() const { return untied_; }

    const std::string& name() const override { return model_.name(); }
    const Metadata& meta() const override { return model_.meta(); }
    std::string folder() const override { return model_.folder(); }
    const std::vector<TensorInfo>& tensors() const override { return tensors_; }
    const TensorInfo* FindTensor(std::string_view tensor) const override {
        const auto found = index_.find(tensor);
        return found == index_.end() ? nullptr : &tensors_[found->second];
    }
    Status ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const override {
        WEFT_CHECK(col_begin == 0 && col_count == tensor.cols);
        const size_t index = index_.find(tensor.name)->second;
        if (const auto at = taken_.find(index); at != taken_.end()) {
            const hf::ExportTensor& all = at->second;
            if (all.turned) return ReadTurned(*all.from, row_begin, row_count, out, bytes_read);
            WEFT_TRY(model_.ReadRows(*all.from, all.row_begin + row_begin, row_count, 0, col_count,
                                     out, bytes_read));
            return all.factor == 1 ? Status() : Divide(tensor, all.factor, row_count, out);
        }
        const SafeTensor& from = saved()[index];
        const uint64_t row_bytes = from.bytes / static_cast<uint64_t>(tensor.rows);
        if (bytes_read != nullptr) *bytes_read += out.size();
        return files_.file(from).ReadAt(from.offset + static_cast<uint64_t>(row_begin) * row_bytes,
                                        out);
    }
    Result<std::string> Fingerprint() const override { return model_.Fingerprint(); }

  private:
    static Status Divide(const TensorInfo& tensor, double factor, int64_t rows,
                         std::span<std::byte> out) {
        std::vector<float> values(static_cast<size_t>(rows * tensor.cols));
        DequantizeRow(tensor.dtype, out, values);
        for (float& value : values) value = static_cast<float>(value / factor);
        QuantizeRow(tensor.dtype, values, out);
        return {};
    }

    // Columns [begin, begin + count) of a tensor, as rows.
    Status ReadTurned(const TensorInfo& tensor, int64_t begin, int64_t count,
                      std::span<std::byte> out, uint64_t* bytes_read) const {
        std::vector<std::byte> columns(out.size());
        WEFT_TRY(model_.ReadRows(tensor, 0, tensor.rows, begin, count, columns, bytes_read));
        const auto rows = static_cast<size_t>(tensor.rows), width = static_cast<size_t>(count);
        const size_t bytes = out.size() / (rows * width);  // of an element
        for (size_t row = 0; row < rows; ++row) {
            for (size_t col = 0; col < width; ++col) {
                std::memcpy(&out[(col * rows + row) * bytes], &columns[(row * width + col) * bytes],
                            bytes);
            }
        }
        return {};
    }

    const ModelSource& model_;
    const hf::TensorFiles files_;
    std::vector<SafeTensor> saved_;
    std::vector<TensorInfo> tensors_;  // as saved()
    std::map<std::string, size_t, std::less<>> index_;
    std::map<size_t, hf::ExportTensor> taken_;
    bool untied_ = false;
};

namespace {

// Gives the plan the names and the order of the folder's tensors.
class Renaming {
  public:
    Renaming(FolderTensors& folder, const MergedSource& merged)
        : folder_(folder), turns_experts_(HasPairedExperts(merged)) {
        for (size_t i = 0; i < folder.saved().size(); ++i) {
            places_.emplace(PlaceOf(folder.saved()[i].name), i);
        }
    }

    Result<LoraPlan> Of(const LoraPlan& plan) const {
        LoraPlan renamed = plan;
        renamed.targets.clear();
        std::set<std::string> taken;  // a module may be several targets
        for (LoraTarget target : plan.targets) {
            if (taken_.contains(target.tensor)) {
                renamed.left_out.insert(target.module + ".");
                continue;
            }
            if (!taken.insert(target.module).second) continue;
            const std::optional<Stack> stack = StackOf(target);
            WEFT_ASSIGN(const TensorInfo* tensor,
                        stack ? Result(stack->tensor) : Find(target.module + ".weight"));
            const bool is_keys = target.form == LoraTarget::Form::kKeys;
            if (is_keys) target.form = LoraTarget::Form::kMatrix;
            if (stack) target.form = stack->form;
            target.tensor = tensor->name;
            target.rows = tensor->rows;
            target.cols = tensor->cols;
            target.pairs_of = target.row_begin = 0;
            target.runs = target.columns = {};
            if (!stack) target.experts = 1;
            target.scale /= target.factor;
            target.factor = 1;
            renamed.targets.push_back(std::move(target));
        }
        std::erase_if(renamed.wholes, [&](const LoraWhole& whole) {
            if (!taken_.contains(whole.tensor)) return false;
            renamed.left_out.insert(whole.name);
            return true;
        });
        for (LoraWhole& whole : renamed.wholes) {
            std::string name = whole.name;
            const size_t rows = name.find(kTokenRows);
            if (rows != name.npos) name.replace(rows, kTokenRows.size(), ".weight");
            // (The folder may hold a copy of the embedding as its output matrix.)
            if (whole.tensor == kOutputTensor && !output_.empty()) name = output_ + ".weight";
            WEFT_ASSIGN(const TensorInfo* tensor, Find(name));
            whole.tensor = tensor->name;
            whole.pairs_of = whole.height = 0;
            whole.add = 0;
            whole.factor = 1;
        }
        return renamed;
    }

    // Takes the tensors that the folder has in another form: of single experts whose adapters are
    // one tensor, and turned ones. names: of `merged`.
    Status TakeOthers(const LoraPlan& plan, const std::vector<hf::ExportTensor>& names) {
        std::set<std::string> turned;
        for (const hf::ExportTensor& name : names) {
            if (name.turned) turned.insert(name.from->name);
        }
        for (const LoraTarget& target : plan.targets) {
            const bool turns = turned.contains(target.tensor);
            if ((target.form != LoraTarget::Form::kExperts || StackOf(target)) && !turns) continue;
            taken_.insert(target.tensor);
            int64_t rows = 0;
            for (const hf::ExportTensor& name : names) {
                if (name.from->name != target.tensor) continue;
                WEFT_ASSIGN(const TensorInfo* tensor, Find(name.name));
                const auto shape = std::pair(name.rows, name.from->cols);
                if (shape != (turns ? std::pair(tensor->cols, tensor->rows)
                                    : std::pair(tensor->rows, tensor->cols))) {
                    break;
                }
                folder_.TakeFrom(name, IndexOf(tensor));
                rows += name.rows;
            }
            if (rows != target.rows) return NoPlace(target.module);
        }
        return {};
    }

    // Finds the folder's output matrix by the name that its class gives the module, too: GPT-NeoX's
    // lm_head is saved as embed_out.
    void NameOutput(const std::string& module) {
        output_ = module;
        for (const std::string name : hf::OutputNames()) {
            const auto saved = places_.find(PlaceOf(name + ".weight"));
            if (saved == places_.end() || module.empty()) continue;
            places_.emplace(PlaceOf(module + ".weight"), saved->second);
            return;
        }
    }

    // Adds the output matrix that `merged` has if the adapter changes a model that uses its
    // embedding as the output matrix. module: of the output matrix in the folder's class.
    Status AddOutput(const MergedSource& merged, const std::string& module,
                     const std::vector<hf::ExportTensor>& names) {
        const TensorInfo* const output = merged.FindTensor(kOutputTensor);
        if (!merged.plan().ChangesEnds() || output == nullptr || module.empty()) return {};
        folder_.SetUntied();
        const std::string name = module + ".weight";
        if (places_.contains(PlaceOf(name))) return {};
        const auto table = std::ranges::find_if(
            names, [](const auto& one) { return one.from->name == kEmbeddingTensor; });
        if (table == names.end()) return NoPlace(kEmbeddingTensor);
        WEFT_ASSIGN(const TensorInfo* like, Find(table->name));
        SafeTensor saved = folder_.saved()[IndexOf(like)];
        saved.name = name;
        const size_t index = folder_.saved().size();
        folder_.Add(std::move(saved));
        WEFT_ASSIGN(const auto factors, hf::EndFactorsOf(merged));
        if (!factors) return NoPlace(module);
        hf::ExportTensor taken{name, output, 0, 0, output->rows};
        taken.factor = factors->output;
        folder_.TakeFrom(taken, index);
        places_.emplace(PlaceOf(name), index);
        taken_.insert(kOutputTensor);
        return {};
    }

  private:
    // The same for all names that a tensor has in classes of transformers.
    static std::string PlaceOf(const std::string& name) {
        return ModuleInMemory(WithoutPath(name));
    }

    // The folder's tensor of all experts, if it has their matrices in one.
    struct Stack {
        const TensorInfo* tensor;
        LoraTarget::Form form;
    };
    std::optional<Stack> StackOf(const LoraTarget& target) const {
        constexpr std::string_view kBase = ".base_layer";
        if (target.form != LoraTarget::Form::kExperts) return std::nullopt;
        std::string name = target.module;
        if (name.ends_with(kBase)) name.resize(name.size() - kBase.size());
        const bool down = target.tensor.find("_down_") != target.tensor.npos;
        const auto found = places_.find(PlaceOf(name + (down ? ".down_proj" : ".gate_up_proj")));
        if (found == places_.end()) return std::nullopt;
        const SafeTensor& saved = folder_.saved()[found->second];
        const int64_t in = target.cols, out = target.runs.All(target.rows / target.experts);
        using Shape = std::vector<int64_t>;
        const bool plain = saved.shape == Shape{target.experts, out, in};
        const bool turned = saved.shape == Shape{target.experts, in, out};
        if (!IsFloat(saved.type) || (!plain && !turned)) return std::nullopt;
        return Stack{&folder_.tensors()[found->second], turned && (turns_experts_ || !plain)
                                                            ? LoraTarget::Form::kTurned
                                                            : LoraTarget::Form::kExperts};
    }

    Error NoPlace(const std::string& name) const {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: the adapter changes '{}', and the folder has no tensor of F32, F16 "
                         "or BF16 for it; write a GGUF file instead (--save-format gguf)",
                         folder_.name(), hf::Shown(name));
    }

    Result<const TensorInfo*> Find(const std::string& name) const {
        const auto found = places_.find(PlaceOf(name));
        if (found == places_.end() || !IsFloat(folder_.saved()[found->second].type)) {
            return NoPlace(name);
        }
        return &folder_.tensors()[found->second];
    }

    size_t IndexOf(const TensorInfo* tensor) const {
        return static_cast<size_t>(tensor - folder_.tensors().data());
    }

    FolderTensors& folder_;
    const bool turns_experts_;  // also those whose shape does not show it
    std::map<std::string, size_t> places_;
    std::set<std::string> taken_;  // tensors of the merged model
    std::string output_;           // the module of the output matrix; "": none
};

// The type of most weights.
SafeType MainType(const std::vector<SafeTensor>& tensors) {
    std::map<SafeType, uint64_t> bytes;
    for (const SafeTensor& tensor : tensors) {
        if (IsFloat(tensor.type)) bytes[tensor.type] += tensor.bytes;
    }
    const auto most = std::ranges::max_element(
        bytes, [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == bytes.end() ? SafeType::kF32 : most->first;
}

}  // namespace

Result<MergedFolder> MergeInFolder(const MergedSource& merged) {
    WEFT_ASSIGN(hf::TensorFiles files, hf::TensorFiles::Open(merged.folder()));
    auto folder = std::make_unique<FolderTensors>(merged, std::move(files));
    const FolderTensors* const tensors = folder.get();
    WEFT_ASSIGN(const std::vector<hf::ExportTensor> names, hf::FolderNames(merged, kAdapterPrefix));
    WEFT_ASSIGN(const std::string output, hf::OutputModuleOf(merged));
    Renaming renaming(*folder, merged);
    renaming.NameOutput(output);
    WEFT_TRY(renaming.AddOutput(merged, output, names));
    WEFT_TRY(renaming.TakeOthers(merged.plan(), names));
    WEFT_ASSIGN(const LoraPlan plan, renaming.Of(merged.plan()));
    WEFT_ASSIGN(auto made, MergedSource::Make(std::move(folder), plan));
    return MergedFolder{tensors, std::move(made)};
}

Result<hf::FolderPlan> PlanMergedFolder(const MergedFolder& source, const std::string& folder,
                                        SafeType type) {
    const std::vector<SafeTensor>& saved = source.folder->saved();
    const SafeType main = MainType(saved);
    std::vector<hf::ExportTensor> tensors;
    for (size_t i = 0; i < saved.size(); ++i) {
        if (saved[i].bytes == 0) continue;
        const TensorInfo* const from = &source.merged->tensors()[i];
        hf::ExportTensor tensor{saved[i].name, from, 0, 0, from->rows};
        tensor.shape = saved[i].shape;
        const bool changes = source.merged->changes().contains(i) || source.folder->IsTaken(i);
        if (!changes && saved[i].type != main) tensor.bytes = source.folder->Bytes(i);
        tensors.push_back(std::move(tensor));
    }
    return hf::PlanCopy(*source.merged, std::move(tensors), folder, type, source.folder->untied());
}

}  // namespace weft::model_files
