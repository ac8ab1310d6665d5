#include "engine/rank/weight_stream.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/byte_codec.h"

namespace weft::engine {
namespace {

using model_files::MetaEntry;
using model_files::MetaType;
using model_files::TensorInfo;

constexpr int64_t kLeastHeaderMs = 60'000;
// Each rank gets a copy of it.
constexpr size_t kMostHeaderBytes = 16 << 20;
// No loader requests more at once (backend: 1 MiB and a strip; a transposed read: one matrix).
constexpr int64_t kMostRequestBytes = int64_t{1} << 30;
constexpr std::string_view kTokenizerKeys = "tokenizer.";

// Whether ranks read the tensor before they load, and before they have links: its values are in the
// header. RoPE's factors, and numbers of layers.
bool IsSentWithHeader(const TensorInfo& t) {
    constexpr uint64_t kMostBytes = 64 << 10;
    constexpr int64_t kMostNumbers = 16;
    const bool of_rope = t.name.find("rope_") != std::string::npos;
    return t.bytes <= kMostBytes && (of_rope || t.rows * t.cols <= kMostNumbers);
}

// A request: rows and columns of the tensor with that index; -1: no more requests.
struct RowsRequest {
    int64_t tensor = -1;
    int64_t row_begin = 0, row_count = 0;
    int64_t col_begin = 0, col_count = 0;
};

constexpr net::OpTag kRequestTag{"weight_request", 0, 0};
constexpr net::OpTag kPieceTag{"weight_piece", 0, 0};

nlohmann::json::binary_t Binary(std::span<const std::byte> bytes) {
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    return nlohmann::json::binary_t({data, data + bytes.size()});
}

// Whether an entry's size matches its type and count.
bool IsSound(const MetaEntry& entry) {
    if (entry.type == MetaType::kArray && entry.element_type == MetaType::kArray) return false;
    if (entry.type != MetaType::kArray && entry.count != 1) return false;
    const size_t each = model_files::MetaTypeBytes(entry.element_type);
    if (each > 0) return entry.bytes.size() / each == entry.count && entry.bytes.size() % each == 0;
    ByteReader strings(entry.bytes);
    for (uint64_t i = 0; i < entry.count && strings.ok(); ++i)
        strings.Raw(strings.Take<uint64_t>());
    return strings.done();
}

bool IsSound(const TensorInfo& t) {
    constexpr int64_t kMost = int64_t{1} << 40;
    if (t.dim_count < 1 || t.dim_count > 4 || t.dims[0] != t.cols) return false;
    int64_t rows = 1;
    for (size_t i = 0; i < 4; ++i) {
        if (t.dims[i] < 1 || t.dims[i] > kMost) return false;
        if (i >= 1) rows = rows > kMost / t.dims[i] ? kMost + 1 : rows * t.dims[i];
    }
    return rows == t.rows && rows <= kMost / t.cols && t.cols % Info(t.dtype).block_elements == 0;
}

Error BadHeader(const std::string& what) {
    return MakeError(ErrorCode::kCorrupt,
                     "model header from rank 0: {}. Do all hosts run the same version of weft?",
                     what);
}

TensorInfo TensorOf(const nlohmann::json& json, DType dtype) {
    TensorInfo tensor{};
    tensor.name = json.at(0).get<std::string>();
    tensor.dtype = dtype;
    tensor.dim_count = json.at(2).get<int>();
    tensor.dims = json.at(3).get<std::array<int64_t, 4>>();
    tensor.cols = tensor.dims[0];
    tensor.rows = json.at(4).get<int64_t>();
    return tensor;
}

// Whether the request stays within its tensor.
bool Fits(const RowsRequest& r, const std::vector<TensorInfo>& tensors) {
    if (r.tensor < 0 || r.tensor >= static_cast<int64_t>(tensors.size())) return false;
    const TensorInfo& t = tensors[static_cast<size_t>(r.tensor)];
    const int64_t block = Info(t.dtype).block_elements;
    const auto within = [](int64_t begin, int64_t count, int64_t size) {
        return begin >= 0 && count >= 1 && begin <= size && count <= size - begin;
    };
    if (!within(r.row_begin, r.row_count, t.rows) || !within(r.col_begin, r.col_count, t.cols) ||
        r.col_begin % block != 0 || r.col_count % block != 0) {
        return false;
    }
    return r.row_count <= kMostRequestBytes / RowBytes(t.dtype, r.col_count);
}

}  // namespace

Result<std::string> StreamHeader(const model_files::ModelSource& source) {
    WEFT_ASSIGN(const std::string fingerprint, source.Fingerprint());
    nlohmann::json meta = nlohmann::json::array(), tensors = nlohmann::json::array();
    for (const MetaEntry& entry : source.meta().entries()) {
        if (entry.key.starts_with(kTokenizerKeys) || !IsSound(entry)) continue;
        meta.push_back({std::string(entry.key), static_cast<uint32_t>(entry.type),
                        static_cast<uint32_t>(entry.element_type), entry.count,
                        nlohmann::json(Binary(entry.bytes))});
    }
    for (const TensorInfo& t : source.tensors()) {
        tensors.push_back({t.name, std::string(Info(t.dtype).name), t.dim_count, t.dims, t.rows});
        if (!IsSentWithHeader(t)) continue;
        std::vector<std::byte> values(t.bytes);
        WEFT_TRY(source.ReadRows(t, 0, t.rows, 0, t.cols, values, nullptr));
        tensors.back().push_back(nlohmann::json(Binary(values)));
    }
    const auto bytes = nlohmann::json::to_cbor({{"name", source.name()},
                                                {"fingerprint", fingerprint},
                                                {"meta", std::move(meta)},
                                                {"tensors", std::move(tensors)}});
    if (bytes.size() > kMostHeaderBytes) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: its header of {} bytes is too large to be sent to other ranks (at "
                         "most {}). Give every host a copy, and leave --weights-from out.",
                         source.name(), bytes.size(), kMostHeaderBytes);
    }
    return std::string(bytes.begin(), bytes.end());
}

Result<std::unique_ptr<StreamedSource>> StreamedSource::Parse(const std::string& header) {
    std::unique_ptr<StreamedSource> source(new StreamedSource());
    try {
        WEFT_TRY(source->TakeMetadata(header));
    } catch (const nlohmann::json::exception& error) {
        return BadHeader(error.what());
    }
    for (size_t i = 0; i < source->tensors_.size(); ++i) {
        if (!source->index_.emplace(source->tensors_[i].name, i).second) {
            return BadHeader(fmt::format("two tensors '{}'", source->tensors_[i].name));
        }
    }
    return source;
}

Status StreamedSource::TakeMetadata(const std::string& header) {
    const nlohmann::json json = nlohmann::json::from_cbor(header);
    json.at("name").get_to(name_);
    json.at("fingerprint").get_to(fingerprint_);
    const nlohmann::json& meta = json.at("meta");
    // Views point into these, so their addresses must be final before the first view.
    for (const nlohmann::json& entry : meta) {
        keys_.push_back(entry.at(0).get<std::string>());
        values_.push_back(entry.at(4).get_binary());
    }
    std::vector<MetaEntry> entries;
    for (size_t i = 0; i < meta.size(); ++i) {
        const auto type = meta[i].at(1).get<uint32_t>(), element = meta[i].at(2).get<uint32_t>();
        MetaEntry entry{keys_[i], static_cast<MetaType>(type), static_cast<MetaType>(element),
                        meta[i].at(3).get<uint64_t>(), std::as_bytes(std::span(values_[i]))};
        if (type >= model_files::kMetaTypeCount || element >= model_files::kMetaTypeCount ||
            (entry.type != MetaType::kArray && type != element) || !IsSound(entry)) {
            return BadHeader(fmt::format("metadata '{}' is malformed", keys_[i]));
        }
        entries.push_back(entry);
    }
    meta_ = std::make_unique<model_files::Metadata>(name_, std::move(entries));
    for (const nlohmann::json& entry : json.at("tensors")) {
        // (Also types that no file has, made at load: W4, W8, NVFP4.)
        const std::string type = entry.at(1).get<std::string>();
        const auto info = std::ranges::find(kDTypes, type, &DTypeInfo::name);
        if (info == kDTypes.end()) return BadHeader("a tensor of an unknown type");
        TensorInfo tensor = TensorOf(entry, info->dtype);
        if (!IsSound(tensor)) return BadHeader(fmt::format("tensor '{}'", tensor.name));
        tensor.bytes = static_cast<uint64_t>(tensor.rows * RowBytes(tensor.dtype, tensor.cols));
        if (entry.size() > 5) {
            const std::vector<uint8_t>& values = entry.at(5).get_binary();
            if (values.size() != tensor.bytes) {
                return BadHeader(
                    fmt::format("{} bytes of tensor '{}'", values.size(), tensor.name));
            }
            held_[tensors_.size()] = values;
        }
        tensors_.push_back(std::move(tensor));
    }
    return {};
}

const TensorInfo* StreamedSource::FindTensor(std::string_view tensor) const {
    const auto found = index_.find(tensor);
    return found == index_.end() ? nullptr : &tensors_[found->second];
}

Status StreamedSource::ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                                int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                                uint64_t* bytes_read) const {
    CheckSlice(tensor, row_begin, row_count, col_begin, col_count, out.size());
    const auto index = static_cast<size_t>(&tensor - tensors_.data());
    const RowsRequest request{static_cast<int64_t>(index), row_begin, row_count, col_begin,
                              col_count};
    WEFT_CHECK(Fits(request, tensors_));
    if (const auto held = held_.find(index); held != held_.end()) {
        const int64_t width = RowBytes(tensor.dtype, col_count);
        for (int64_t row = 0; row < row_count; ++row) {
            const int64_t from = (row_begin + row) * RowBytes(tensor.dtype, tensor.cols) +
                                 RowBytes(tensor.dtype, col_begin);
            std::memcpy(out.data() + row * width, held->second.data() + from,
                        static_cast<size_t>(width));
        }
        return {};
    }
    const std::lock_guard lock(mutex_);
    if (world_ == nullptr) {
        return MakeError(ErrorCode::kUnsupported,
                         "--weights-from 0: tensor {} is needed before rank 0 can send it. Give "
                         "every host a copy of the model, and leave --weights-from out",
                         tensor.name);
    }
    WEFT_TRY(world_->Send(std::as_bytes(std::span(&request, 1)), 0, kRequestTag));
    WEFT_TRY(world_->Recv(out, 0, kPieceTag));
    if (bytes_read != nullptr) *bytes_read += out.size();
    return {};
}

Status StreamedSource::LogDone() {
    const RowsRequest request;
    const std::lock_guard lock(mutex_);
    return world_->Send(std::as_bytes(std::span(&request, 1)), 0, kRequestTag);
}

Result<std::unique_ptr<model_files::ModelSource>> OpenStreamed(const Job& job,
                                                               cluster::Cluster& cluster) {
    std::unique_ptr<model_files::ModelSource> own;
    std::string header;
    if (cluster.rank() == 0) {
        WEFT_ASSIGN(own, OpenModelOf(job));
        WEFT_ASSIGN(header, StreamHeader(*own));
    }
    const int64_t wait_ms = std::max(kLeastHeaderMs, cluster.timeout_ms());
    WEFT_ASSIGN(const std::vector<std::string> headers,
                cluster.AllGather("model header", header, Deadline::In(wait_ms)));
    if (cluster.rank() == 0) return own;
    WEFT_ASSIGN(std::unique_ptr<StreamedSource> fed, StreamedSource::Parse(headers[0]));
    return std::unique_ptr<model_files::ModelSource>(std::move(fed));
}

Status StreamWeights(coll::Comm& world, const model_files::ModelSource& source,
                     const std::atomic<bool>& stop, std::atomic<uint64_t>& fed_bytes) {
    std::vector<int> hungry;
    for (int rank = 1; rank < world.size(); ++rank) hungry.push_back(rank);
    std::vector<std::byte> piece;
    while (!hungry.empty() && !stop.load()) {
        std::vector<int> again;
        for (int rank : hungry) {
            RowsRequest request;
            WEFT_TRY(world.Recv(std::as_writable_bytes(std::span(&request, 1)), rank, kRequestTag));
            if (request.tensor == -1) continue;
            if (!Fits(request, source.tensors())) {
                return MakeError(
                    ErrorCode::kCorrupt,
                    "rank {} asks for {} rows from {}, {} columns from {} of tensor {}, which are "
                    "not in {} with its {} tensors. Do all hosts run the same version of weft?",
                    rank, request.row_count, request.row_begin, request.col_count,
                    request.col_begin, request.tensor, source.name(), source.tensors().size());
            }
            const TensorInfo& tensor = source.tensors()[static_cast<size_t>(request.tensor)];
            piece.resize(
                static_cast<size_t>(request.row_count * RowBytes(tensor.dtype, request.col_count)));
            WEFT_TRY(source.ReadRows(tensor, request.row_begin, request.row_count,
                                     request.col_begin, request.col_count, piece, nullptr));
            WEFT_TRY(world.Send(piece, rank, kPieceTag));
            fed_bytes.fetch_add(piece.size(), std::memory_order_relaxed);
            again.push_back(rank);
        }
        hungry = std::move(again);
    }
    return {};
}

}  // namespace weft::engine
