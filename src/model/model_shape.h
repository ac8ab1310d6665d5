// A model without weights: the tensors that its Program needs, by its config.json.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "model/hyper.h"
#include "model_files/hf/folder_config.h"
#include "model_files/hf/layer_tensors.h"
#include "model_files/model_file.h"

namespace weft::model {

// Tensors have names, shapes and types, but no numbers, except vectors that config.json states.
class ModelShape final : public model_files::ModelSource {
  public:
    // config_text: of config.json; name: the model's name in messages. draft_head: with the
    // multi-token prediction head, if Weft knows the family's. Matrices are BF16, vectors F32.
    // Errors: those of ParseFolderConfig, ReadHyper and BuildProgram.
    static Result<std::unique_ptr<ModelShape>> Make(std::string config_text,
                                                    const std::string& name, bool draft_head);

    const std::string& name() const override { return name_; }
    const model_files::Metadata& meta() const override { return meta_; }
    const std::vector<model_files::TensorInfo>& tensors() const override { return tensors_; }
    const model_files::TensorInfo* FindTensor(std::string_view tensor) const override;
    const model_files::TensorInfo* FindNeeded(std::string_view tensor,
                                              std::span<const int64_t> dims) const override;
    Status ReadRows(const model_files::TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const override;
    Result<std::string> Fingerprint() const override;

    const model_files::hf::Config& config() const { return config_; }
    const model_files::hf::Family& family() const { return *family_; }
    void SetType(size_t index, DType dtype);
    void SetNote(std::string note) { note_ = std::move(note); }  // for the user, about types
    const std::string& note() const { return note_; }

  private:
    ModelShape(std::string name, model_files::hf::FolderConfig config,
               model_files::hf::LayerTensors layers);
    Status AddEnds();
    Status Describe(bool draft_head);
    void AddUnread();
    // dims: columns first.
    const model_files::TensorInfo& Add(std::string tensor, std::span<const int64_t> dims) const;
    void AddNumbers(const std::string& tensor, std::vector<float> numbers);

    std::string name_, note_;
    const model_files::hf::Family* family_;
    model_files::hf::Config config_;
    std::vector<std::byte> header_;  // meta_ points into it
    model_files::Metadata meta_;
    // Until the Program of the whole model has named every tensor, FindTensor answers from layers_.
    bool described_ = false;
    model_files::hf::LayerTensors layers_;
    Hyper hyper_;
    mutable std::vector<model_files::TensorInfo> tensors_;
    mutable std::unordered_map<std::string, size_t> index_;
    mutable std::deque<model_files::TensorInfo> expected_;
    std::map<std::string, std::vector<float>, std::less<>> numbers_;
};

}  // namespace weft::model
