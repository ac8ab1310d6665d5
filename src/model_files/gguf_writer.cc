#include "model_files/gguf_writer.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/check.h"

namespace weft::model_files {
namespace {

void PutBytes(std::vector<std::byte>& out, const void* data, size_t size) {
    const size_t at = out.size();
    out.resize(at + size);
    if (size > 0) std::memcpy(out.data() + at, data, size);
}

template <typename T>
void Put(std::vector<std::byte>& out, T value) {
    PutBytes(out, &value, sizeof value);
}

void PutString(std::vector<std::byte>& out, std::string_view text) {
    Put<uint64_t>(out, text.size());
    PutBytes(out, text.data(), text.size());
}

uint64_t RoundUp(uint64_t value, uint64_t step) {
    return (value + step - 1) / step * step;
}

}  // namespace

GgufWriter::GgufWriter(uint32_t version, uint32_t alignment)
    : version_(version), alignment_(alignment) {
    if (alignment != 32) U32("general.alignment", alignment);
}

void GgufWriter::Key(std::string_view key, MetaType type) {
    PutString(entries_, key);
    Put(entries_, static_cast<uint32_t>(type));
    ++entry_count_;
}

void GgufWriter::Array(std::string_view key, MetaType element, uint64_t count,
                       std::span<const std::byte> values) {
    Key(key, MetaType::kArray);
    Put(entries_, static_cast<uint32_t>(element));
    Put(entries_, count);
    PutBytes(entries_, values.data(), values.size());
}

void GgufWriter::String(std::string_view key, std::string_view value) {
    Key(key, MetaType::kString);
    PutString(entries_, value);
}

void GgufWriter::Strings(std::string_view key, std::span<const std::string> values) {
    Array(key, MetaType::kString, values.size(), {});
    for (const std::string& value : values) PutString(entries_, value);
}

void GgufWriter::Raw(std::string_view key, MetaType type, std::span<const std::byte> value) {
    Key(key, type);
    PutBytes(entries_, value.data(), value.size());
}

void GgufWriter::Copy(const MetaEntry& entry) {
    if (entry.type != MetaType::kArray) return Raw(entry.key, entry.type, entry.bytes);
    Array(entry.key, entry.element_type, entry.count, entry.bytes);
}

void GgufWriter::Tensor(std::string_view name, DType dtype, std::span<const int64_t> dims,
                        std::vector<std::byte> data) {
    uint64_t bytes = static_cast<uint64_t>(RowBytes(dtype, dims[0]));
    for (int64_t dim : dims.subspan(1)) bytes *= static_cast<uint64_t>(dim);
    WEFT_CHECK(data.empty() || data.size() == bytes);
    tensors_.push_back({std::string(name),
                        static_cast<uint32_t>(Info(dtype).gguf_type),
                        {dims.begin(), dims.end()},
                        data_bytes_,
                        std::move(data)});
    data_bytes_ += RoundUp(bytes, alignment_);
}

std::vector<std::byte> GgufWriter::Header() const {
    std::vector<std::byte> out;
    out.reserve(entries_.size() + 128 * tensors_.size() + alignment_);
    Put<uint32_t>(out, 0x46554747);  // "GGUF"
    Put(out, version_);
    Put<uint64_t>(out, tensors_.size());
    Put(out, entry_count_);
    PutBytes(out, entries_.data(), entries_.size());
    for (const TensorEntry& tensor : tensors_) {
        PutString(out, tensor.name);
        Put(out, static_cast<uint32_t>(tensor.dims.size()));
        for (int64_t dim : tensor.dims) Put(out, dim);
        Put(out, tensor.type);
        Put(out, tensor.offset);
    }
    out.resize(RoundUp(out.size(), alignment_));
    return out;
}

std::vector<std::byte> GgufWriter::File() const {
    std::vector<std::byte> out = Header();
    for (const TensorEntry& tensor : tensors_) {
        WEFT_CHECK(!tensor.data.empty());
        PutBytes(out, tensor.data.data(), tensor.data.size());
        out.resize(RoundUp(out.size(), alignment_));
    }
    return out;
}

Status WriteGguf(const ModelSource& source, const std::string& path) {
    GgufWriter writer;
    for (const MetaEntry& entry : source.meta().entries()) {
        if (entry.key.starts_with("split.") || entry.key == "general.alignment") continue;
        writer.Copy(entry);
    }
    for (const TensorInfo& tensor : source.tensors()) {
        const auto dims = std::span(tensor.dims).first(static_cast<size_t>(tensor.dim_count));
        writer.Tensor(tensor.name, tensor.dtype, dims);
    }
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    const auto put = [&](std::span<const std::byte> bytes) {
        file.write(reinterpret_cast<const char*>(bytes.data()),
                   static_cast<std::streamsize>(bytes.size()));
    };
    put(writer.Header());
    constexpr int64_t kChunkBytes = 8 << 20;
    std::vector<std::byte> chunk;
    for (const TensorInfo& tensor : source.tensors()) {
        const int64_t row_bytes = RowBytes(tensor.dtype, tensor.cols);
        const int64_t rows_at_once = std::max<int64_t>(1, kChunkBytes / row_bytes);
        for (int64_t row = 0; row < tensor.rows && file; row += rows_at_once) {
            const int64_t rows = std::min(rows_at_once, tensor.rows - row);
            chunk.resize(static_cast<size_t>(rows * row_bytes));
            WEFT_TRY(source.ReadRows(tensor, row, rows, 0, tensor.cols, chunk, nullptr));
            put(chunk);
        }
        const std::vector<std::byte> padding(RoundUp(tensor.bytes, 32) - tensor.bytes);
        put(padding);
    }
    file.close();
    if (file) return {};
    return MakeError(ErrorCode::kIo, "{}: cannot write {}. Is the disk full?", path, source.name());
}

}  // namespace weft::model_files
