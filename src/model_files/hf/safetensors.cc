#include "model_files/hf/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <unordered_set>

#include "base/dangling_link.h"
#include "base/file_kind.h"
#include "model_files/folder_kind.h"
#include "model_files/hf/json.h"
#include "model_files/hf/torch_file.h"

namespace weft::model_files::hf {
namespace {

// Names of one file of weights and of the index of several, in order of preference.
constexpr struct {
    const char *single, *index;
} kWeightNames[] = {{"model.safetensors", "model.safetensors.index.json"},
                    {"pytorch_model.bin", "pytorch_model.bin.index.json"}};
constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMostIndexBytes = 100'000'000;
constexpr size_t kMostDims = 8;
constexpr uint64_t kMostTensorElements = 1ull << 56;
constexpr size_t kMostShards = 4096;

struct TypeRow {
    SafeType type;
    std::string_view name;
    uint64_t bytes;
};

constexpr std::array<TypeRow, 16> kTypes = {{
    {SafeType::kBool, "BOOL", 1},
    {SafeType::kU8, "U8", 1},
    {SafeType::kI8, "I8", 1},
    {SafeType::kF8E4M3, "F8_E4M3", 1},
    {SafeType::kF8E5M2, "F8_E5M2", 1},
    {SafeType::kF8E8M0, "F8_E8M0", 1},
    {SafeType::kU16, "U16", 2},
    {SafeType::kI16, "I16", 2},
    {SafeType::kF16, "F16", 2},
    {SafeType::kBF16, "BF16", 2},
    {SafeType::kU32, "U32", 4},
    {SafeType::kI32, "I32", 4},
    {SafeType::kF32, "F32", 4},
    {SafeType::kU64, "U64", 8},
    {SafeType::kI64, "I64", 8},
    {SafeType::kF64, "F64", 8},
}};

// Reads the header event by event: builds no tree, and detects repeated names.
class HeaderReader final : public nlohmann::json_sax<Json> {
  public:
    HeaderReader(std::string_view where, uint64_t data_begin, uint64_t data_bytes)
        : where_(where), data_begin_(data_begin), data_bytes_(data_bytes) {}

    std::vector<SafeTensor>& tensors() { return tensors_; }
    const std::optional<Error>& error() const { return error_; }

    bool null() override { return Unexpected("null"); }
    bool boolean(bool) override { return Unexpected("true or false"); }
    bool number_integer(int64_t) override { return Unexpected("a negative number"); }
    bool number_float(double, const std::string&) override { return Unexpected("a fraction"); }
    bool binary(Json::binary_t&) override { return Unexpected("binary data"); }
    bool number_unsigned(uint64_t number) override {
        if (depth_ != 3 || numbers_->size() >= kMostDims) return Unexpected("a number");
        numbers_->push_back(number);
        return true;
    }
    bool string(std::string& text) override {
        if (depth_ != 2) return Unexpected("a string");
        if (in_metadata_) return true;
        if (field_ != "dtype") return Unexpected("a string");
        type_ = text;
        return true;
    }
    bool start_object(size_t) override {
        if (depth_ >= 2) return Unexpected("an object");
        if (++depth_ == 2) {
            in_metadata_ = name_ == "__metadata__";
            type_.reset();
            shape_.reset();
            offsets_.reset();
        }
        return true;
    }
    bool end_object() override {
        if (depth_-- == 2 && !in_metadata_) return FinishTensor();
        return true;
    }
    bool key(std::string& text) override {
        if (depth_ == 1) {
            name_ = text;
            field_.clear();
            if (!names_.insert(text).second) return Fail("the name occurs twice");
        } else {
            field_ = text;
            const bool again = (text == "dtype" && type_) || (text == "shape" && shape_) ||
                               (text == "data_offsets" && offsets_);
            if (again && !in_metadata_) return Fail("'{}' occurs twice", text);
        }
        return true;
    }
    bool start_array(size_t) override {
        if (depth_ != 2 || in_metadata_) return Unexpected("an array");
        if (field_ != "shape" && field_ != "data_offsets") return Unexpected("an array");
        numbers_ = &(field_ == "shape" ? shape_ : offsets_).emplace();
        depth_ = 3;
        return true;
    }
    bool end_array() override {
        depth_ = 2;
        return true;
    }
    bool parse_error(size_t at, const std::string&, const Json::exception&) override {
        error_ = MakeError(ErrorCode::kCorrupt, "{}: the header is not valid JSON at its byte {}",
                           where_, at);
        return false;
    }

  private:
    template <typename... Args>
    bool Fail(fmt::format_string<Args...> format, Args&&... args) {
        error_ = MakeError(ErrorCode::kCorrupt, "{}: tensor '{}': {}", where_, Shown(name_),
                           fmt::format(format, std::forward<Args>(args)...));
        return false;
    }
    bool Unexpected(std::string_view what) {
        if (depth_ == 0) {
            error_ = MakeError(ErrorCode::kCorrupt, "{}: the header is {}; expected an object",
                               where_, what);
            return false;
        }
        return Fail("the header has {} at '{}'", what, Shown(field_));
    }
    bool FinishTensor();
    bool FinishShape(SafeTensor& tensor, uint64_t& elements);

    std::string_view where_;
    uint64_t data_begin_, data_bytes_;
    std::vector<SafeTensor> tensors_;
    std::unordered_set<std::string> names_;
    std::optional<Error> error_;

    int depth_ = 0;  // 1: the header object, 2: a tensor, 3: an array in a tensor
    bool in_metadata_ = false;
    std::string name_, field_;
    std::optional<std::string> type_;
    std::optional<std::vector<uint64_t>> shape_, offsets_;
    std::vector<uint64_t>* numbers_ = nullptr;  // the array being read
};

bool HeaderReader::FinishShape(SafeTensor& tensor, uint64_t& elements) {
    elements = 1;
    for (const uint64_t dim : *shape_) {
        if (dim > kMostTensorElements || (dim > 0 && elements > kMostTensorElements / dim)) {
            return Fail("dimension {} makes it too large", dim);
        }
        elements *= dim;
        tensor.shape.push_back(static_cast<int64_t>(dim));
    }
    return true;
}

bool HeaderReader::FinishTensor() {
    if (!type_ || !shape_ || !offsets_) {
        return Fail("no '{}'", !type_ ? "dtype" : !shape_ ? "shape" : "data_offsets");
    }
    const auto* row = std::ranges::find(kTypes, *type_, &TypeRow::name);
    if (row == kTypes.end()) {
        error_ = MakeError(ErrorCode::kUnsupported, "{}: tensor '{}' is of dtype '{}', which {}",
                           where_, Shown(name_), Shown(*type_), "Weft does not know");
        return false;
    }
    SafeTensor tensor{name_, row->type, {}, 0, 0, 0};
    uint64_t elements = 0;
    if (!FinishShape(tensor, elements)) return false;
    if (offsets_->size() != 2) return Fail("data_offsets has {} numbers, not 2", offsets_->size());
    const uint64_t begin = (*offsets_)[0], end = (*offsets_)[1];
    if (begin > end || end > data_bytes_) {
        return Fail(
            "its data is bytes {} to {}, but the file has {} bytes of data. Is the download "
            "complete?",
            begin, end, data_bytes_);
    }
    if (end - begin != elements * row->bytes) {
        return Fail("{} elements of {} take {} bytes, but data_offsets has {}", elements, row->name,
                    elements * row->bytes, end - begin);
    }
    tensor.offset = data_begin_ + begin;
    tensor.bytes = end - begin;
    tensors_.push_back(std::move(tensor));
    return true;
}

// Checks that the tensors fill the data without holes, from the first byte to the last.
Status CheckPlacement(const std::vector<SafeTensor>& tensors, uint64_t data_begin,
                      uint64_t file_bytes, std::string_view where) {
    std::vector<const SafeTensor*> order;
    order.reserve(tensors.size());
    for (const SafeTensor& tensor : tensors) order.push_back(&tensor);
    std::ranges::sort(order, [](const SafeTensor* a, const SafeTensor* b) {
        return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
    });
    uint64_t end = data_begin;
    const SafeTensor* before = nullptr;
    for (const SafeTensor* tensor : order) {
        if (tensor->offset < end) {
            return MakeError(ErrorCode::kCorrupt, "{}: tensor '{}' overlaps tensor '{}'", where,
                             Shown(tensor->name), Shown(before->name));
        }
        if (tensor->offset > end) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: {} bytes of data in front of tensor '{}' belong to no tensor",
                             where, tensor->offset - end, Shown(tensor->name));
        }
        end = tensor->offset + tensor->bytes;
        before = tensor;
    }
    if (end == file_bytes) return {};
    return MakeError(ErrorCode::kCorrupt, "{}: the last {} bytes of data belong to no tensor",
                     where, file_bytes - end);
}

Result<uint64_t> HeaderBytes(uint64_t length, uint64_t file_bytes, std::string_view where) {
    if (length > kMostHeaderBytes) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: the header length is {} bytes; the format allows {}. Is it a "
                         "safetensors file?",
                         where, length, kMostHeaderBytes);
    }
    if (length > file_bytes - kLengthBytes) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: the header length is {} bytes, but the file has {}. Is the download "
                         "complete?",
                         where, length, file_bytes);
    }
    return length;
}

Result<uint64_t> ReadLength(std::span<const std::byte> bytes, uint64_t file_bytes,
                            std::string_view where) {
    if (bytes.size() < kLengthBytes) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: the file has only {} bytes. Is the download complete? 'weft pull' "
                         "fetches missing parts.",
                         where, bytes.size());
    }
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    return HeaderBytes(length, file_bytes, where);
}

// If the header length is invalid: describes the file's kind, if its first bytes show it.
Error Named(const WeightFile& file, const Error& error) {
    std::string begin(std::min<uint64_t>(kKindBytes, file.size_bytes()), '\0');
    if (!file.ReadAt(0, std::as_writable_bytes(std::span(begin))).ok()) return error;
    const std::string kind = WrongKind(begin);
    if (kind.empty()) return error;
    return MakeError(error.code, "{}: not a safetensors file: it is {}", file.path(), kind);
}

}  // namespace

std::string_view SafeTypeName(SafeType type) {
    return kTypes[static_cast<size_t>(type)].name;
}

uint64_t SafeTypeBytes(SafeType type) {
    return kTypes[static_cast<size_t>(type)].bytes;
}

Result<std::vector<SafeTensor>> ParseSafetensors(std::span<const std::byte> bytes,
                                                 uint64_t file_bytes, std::string_view where) {
    WEFT_CHECK(file_bytes >= bytes.size());
    WEFT_ASSIGN(const uint64_t length, ReadLength(bytes, file_bytes, where));
    if (length > bytes.size() - kLengthBytes) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: the header is truncated. Is the download complete? 'weft pull' "
                         "fetches missing parts.",
                         where);
    }
    const uint64_t data_begin = kLengthBytes + length;
    const char* text = reinterpret_cast<const char*>(bytes.data()) + kLengthBytes;
    HeaderReader reader(where, data_begin, file_bytes - data_begin);
    bool parsed = false;
    try {
        parsed = Json::sax_parse(text, text + length, &reader);
    } catch (const std::exception& error) {
        return MakeError(ErrorCode::kCorrupt, "{}: the header is not valid JSON: {}", where,
                         Shown(error.what()));
    }
    if (reader.error()) return *reader.error();
    if (!parsed) return MakeError(ErrorCode::kCorrupt, "{}: the header is not valid JSON", where);
    WEFT_TRY(CheckPlacement(reader.tensors(), data_begin, file_bytes, where));
    return std::move(reader.tensors());
}

Result<ShardIndex> ParseIndex(std::string_view text, std::string_view where) {
    WEFT_ASSIGN(const Config config, Config::Parse(text, where));
    WEFT_ASSIGN(const Config map, config.Sub({"weight_map"}));
    if (map.json().empty()) {
        return MakeError(ErrorCode::kCorrupt, "{}: no 'weight_map', or an empty one", where);
    }
    std::map<std::string, int> files;
    for (const auto& [tensor, file] : map.json().items()) {
        if (!file.is_string()) return map.Corrupt(tensor, "the name of a shard");
        const auto name = file.get<std::string>();
        const bool plain = name.find('/') == name.npos && name.find('\\') == name.npos &&
                           name.find('\0') == name.npos &&
                           (name.ends_with(".safetensors") || name.ends_with(".bin"));
        if (!plain) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: tensor '{}' has the file '{}'; expected the plain name of a "
                             ".safetensors or .bin file in the same folder",
                             where, Shown(tensor), Shown(name));
        }
        files.emplace(name, 0);
    }
    if (files.size() > kMostShards) {
        return MakeError(ErrorCode::kCorrupt, "{}: {} shards; at most {} are supported", where,
                         files.size(), kMostShards);
    }
    ShardIndex index;
    for (auto& [name, place] : files) {
        place = static_cast<int>(index.files.size());
        index.files.push_back(name);
    }
    for (const auto& [tensor, file] : map.json().items()) {
        index.shard_of.emplace(tensor, files.at(file.get<std::string>()));
    }
    return index;
}

Status TensorFiles::AddFile(const std::string& path, ReadPlan* plan) {
    WEFT_ASSIGN(WeightFile file, WeightFile::Open(path, plan));
    if (path.ends_with(".bin")) {
        WEFT_ASSIGN(std::vector<SafeTensor> tensors, ReadTorchFile(file));
        Take(std::move(file), std::move(tensors), {});
        return {};
    }
    std::vector<std::byte> bytes(std::min(kLengthBytes, file.size_bytes()));
    WEFT_TRY(file.ReadAt(0, bytes));
    const auto read = ReadLength(bytes, file.size_bytes(), path);
    if (!read.ok()) return Named(file, read.error());
    const uint64_t length = *read;
    bytes.resize(kLengthBytes + length);
    WEFT_TRY(file.ReadAt(0, bytes));
    WEFT_ASSIGN(std::vector<SafeTensor> tensors, ParseSafetensors(bytes, file.size_bytes(), path));
    Take(std::move(file), std::move(tensors), bytes);
    return {};
}

void TensorFiles::Take(WeightFile file, std::vector<SafeTensor> tensors,
                       std::span<const std::byte> header) {
    for (SafeTensor& tensor : tensors) {
        tensor.shard = static_cast<int>(files_.size());
        tensors_.push_back(std::move(tensor));
    }
    digests_.push_back(Sha256(header));
    files_.push_back(std::move(file));
}

Status TensorFiles::Index() {
    index_.reserve(tensors_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const auto [at, fresh] = index_.emplace(tensors_[i].name, i);
        if (fresh) continue;
        return MakeError(ErrorCode::kCorrupt, "tensor '{}' is in {} and in {}",
                         Shown(tensors_[i].name), file(tensors_[at->second]).path(),
                         file(tensors_[i]).path());
    }
    return {};
}

// For partial files: requires all tensors that are read while the tensor table is built, or that
// decide which other bytes are read (the shape of a packed matrix, the group of a column), so that
// `weft pull --shard` gets all of them at once.
Status TensorFiles::NeedKeys() {
    Status missing;
    for (const SafeTensor& tensor : tensors_) {
        const auto ends = [&](std::string_view end) { return tensor.name.ends_with(end); };
        const auto has = [&](const char* part) {
            return tensor.name.find(part) != std::string::npos;
        };
        const bool numbers = tensor.type == SafeType::kI64 || ends("tid2eid") ||
                             ends("weight_shape") || ends("weight_format");
        // (act_fn: Apertus' numbers, which become metadata.)
        if (!numbers && !ends("g_idx") && !has(".quant_state.") && !has(".act_fn.")) continue;
        WeightFile& file = files_[static_cast<size_t>(tensor.shard)];
        Status need = file.NeedKey({tensor.offset, tensor.offset + tensor.bytes});
        if (missing.ok()) missing = std::move(need);
    }
    return missing;
}

bool HasWeights(const std::string& folder) {
    const std::filesystem::path base(folder);
    return std::ranges::any_of(kWeightNames, [&](const auto& names) {
        return IsListed(base / names.single) || IsListed(base / names.index);
    });
}

Result<TensorFiles> TensorFiles::Open(const std::string& folder, ReadPlan* plan) {
    const std::filesystem::path base(folder);
    TensorFiles files;
    for (const auto& [single, index] : kWeightNames) {
        if (IsListed(base / single)) {
            WEFT_TRY(files.AddFile(base / single, plan));
            WEFT_TRY(files.Index());
        } else if (IsListed(base / index)) {
            WEFT_TRY(files.AddShards(folder, index, plan));
        } else {
            continue;
        }
        WEFT_TRY(files.NeedKeys());
        return files;
    }
    const std::string kind = FolderKind(folder);
    return MakeError(ErrorCode::kNotFound, "{}: neither {} nor {}. {}", folder,
                     kWeightNames[0].single, kWeightNames[0].index,
                     kind.empty() ? "Weft reads safetensors" : "It is " + kind);
}

// The index decides which shard a tensor is read from: shards of an edited model may still hold the
// former tensor.
Status TensorFiles::AddShards(const std::string& folder, const char* index_name, ReadPlan* plan) {
    const std::filesystem::path base(folder);
    const std::string index_path = base / index_name;
    WEFT_ASSIGN(const std::string text, ReadModelText(index_path, kMostIndexBytes));
    WEFT_ASSIGN(const ShardIndex index, ParseIndex(text, index_path));
    for (const std::string& name : index.files) {
        const size_t before = tensors_.size();
        const Status added = AddFile(base / name, plan);
        if (!added.ok()) {
            const bool is_there = IsListed(base / name);
            if (is_there || added.error().code != ErrorCode::kNotFound) return added.error();
            return MakeError(ErrorCode::kNotFound, "{}: shard {} of {} listed in {} is missing",
                             folder, name, index.files.size(), index_name);
        }
        const auto elsewhere = [&](const SafeTensor& tensor) {
            const auto found = index.shard_of.find(tensor.name);
            return found != index.shard_of.end() && found->second != tensor.shard;
        };
        const auto first = tensors_.begin() + static_cast<ptrdiff_t>(before);
        tensors_.erase(std::remove_if(first, tensors_.end(), elsewhere), tensors_.end());
    }
    WEFT_TRY(Index());
    for (const auto& [name, shard] : index.shard_of) {
        if (Find(name) != nullptr) continue;
        return MakeError(ErrorCode::kCorrupt, "{}: tensor '{}' is not in {}, against {}", folder,
                         Shown(name), index.files[static_cast<size_t>(shard)], index_name);
    }
    return {};
}

const SafeTensor* TensorFiles::Find(std::string_view name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace weft::model_files::hf
