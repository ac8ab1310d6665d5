#include "engine/start/self_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/byte_codec.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/home_folder.h"
#include "base/output_file.h"
#include "program/sharding.h"

namespace weft::engine {
namespace {

using program::Trait;

constexpr std::string_view kMagic = "weft proof 1\n";
constexpr uint64_t kMostRecordBytes = 256ull << 20;
constexpr uint32_t kMostName = 255;

std::string CommonName(const std::string& name) {
    std::string text = name;
    for (const char* suffix : {".sum", ".part"}) {
        for (size_t at; (at = text.find(suffix)) != std::string::npos;) {
            text.erase(at, std::strlen(suffix));
        }
    }
    return text;
}

// +1 or -1 for an element, the same on every rank.
float Sign(int64_t row, int64_t column) {
    const uint64_t mixed =
        (static_cast<uint64_t>(row) * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(column)) *
        0xD1B54A32D192ED03ull;
    return (mixed >> 63) != 0 ? -1.0f : 1.0f;
}

void List(auto& fields, auto& record) {
    fields.List(record.ops, SIZE_MAX, [](auto& each, auto& op) {
        each.Text(op.name, kMostName);
        each(op.op, op.first_block);
        each.List(op.blocks, SIZE_MAX);
    });
    fields.List(record.logits, SIZE_MAX);
}

}  // namespace

std::vector<int32_t> SelfTestPrompt(int64_t vocab) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < kSelfTestTokens; ++i) {
        tokens.push_back(static_cast<int32_t>((i * 7919 + 101) % vocab));
    }
    return tokens;
}

std::vector<std::optional<OpPlace>> PlacesOf(const program::Program& program) {
    const std::vector<program::Columns> columns = program::PlaceColumns(program);
    std::vector<bool> partial(program.values.size());
    for (auto it = program.ops.rbegin(); it != program.ops.rend(); ++it) {
        const program::Op& op = *it;
        const program::Operands operands = program::OperandsOf(op).value();
        // A sum is partial if it is read by an all_reduce or by another partial sum.
        for (size_t i = 0; i < op.inputs.size(); ++i) {
            const auto input = static_cast<size_t>(op.inputs[i]);
            if (operands.inputs[i]->wide) {
                partial[input] =
                    op.Is(Trait::kAllReduce) || partial[static_cast<size_t>(op.outputs[0])];
            } else if (op.kind() == program::OpKind::kAdd) {
                partial[input] = partial[input] || partial[static_cast<size_t>(op.outputs[0])];
            }
        }
    }
    std::vector<std::optional<OpPlace>> places(program.ops.size());
    for (size_t i = 0; i < program.ops.size(); ++i) {
        const program::Op& op = program.ops[i];
        if (op.outputs.empty() || op.Is(Trait::kMessage)) continue;
        // (A value that an op adds to was compared before; the self-test uses no adapter.)
        const program::Operands operands = program::OperandsOf(op).value();
        if (operands.outputs[0]->access == program::Access::kAdd) continue;
        const program::ValueId out = op.outputs[0];
        const program::Value& value = program.value(out);
        const bool compared = value.dtype == DType::kF32 && value.shape.rank == 2 &&
                              value.storage == program::Storage::kActivation &&
                              !partial[static_cast<size_t>(out)];
        const auto [begin, cut] = columns[static_cast<size_t>(out)];
        if (compared) places[i] = OpPlace{CommonName(value.name), out, begin, !cut};
    }
    return places;
}

OpDigest Digest(const OpPlace& place, int32_t op, std::span<const float> data, int64_t rows,
                bool blocks) {
    OpDigest digest;
    digest.name = place.name;
    digest.op = op;
    digest.whole = place.whole;
    digest.checksum = Checksum64(std::as_bytes(data));
    const int64_t columns = rows == 0 ? 0 : static_cast<int64_t>(data.size()) / rows;
    const int64_t begin = place.first_column, end = begin + columns;
    digest.first_block = (begin + kDigestColumns - 1) / kDigestColumns;
    const int64_t count = blocks ? end / kDigestColumns - digest.first_block : 0;
    for (int64_t block = 0; block < count; ++block) {
        double sum = 0;
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t i = 0; i < kDigestColumns; ++i) {
                const int64_t column = (digest.first_block + block) * kDigestColumns + i;
                sum += static_cast<double>(Sign(row, column)) *
                       data[static_cast<size_t>(row * columns + column - begin)];
            }
        }
        digest.blocks.push_back(static_cast<float>(sum));
    }
    return digest;
}

std::string EncodeRecord(const SelfTestRecord& record) {
    ByteFieldWriter<> writer;
    writer.Raw(std::as_bytes(std::span(kMagic)));
    List(writer, record);
    writer(Checksum64(writer.bytes()));
    return writer.TakeText();
}

Result<SelfTestRecord> DecodeRecord(std::string_view text) {
    const auto broken = [] {
        return MakeError(ErrorCode::kCorrupt, "a broken record of a self-test");
    };
    if (!text.starts_with(kMagic) || text.size() < kMagic.size() + sizeof(uint64_t))
        return broken();
    const std::string_view body = text.substr(0, text.size() - sizeof(uint64_t));
    if (ByteReader(text.substr(body.size())).Take<uint64_t>() !=
        Checksum64(std::as_bytes(std::span(body)))) {
        return broken();
    }
    ByteFieldReader<> reader(body.substr(kMagic.size()));
    SelfTestRecord record;
    List(reader, record);
    if (!reader.done()) return broken();
    return record;
}

std::string RecordPath(std::string key) {
    std::ranges::replace(key, '/', '_');
    const std::string folder = CacheFolder();
    return folder.empty() ? "" : folder + "/proof/" + key;
}

Result<SelfTestRecord> ReadRecord(const std::string& path) {
    auto text = ReadTextFile(path, kMostRecordBytes);
    if (!text.ok()) return MakeError(ErrorCode::kNotFound, "{}: no record", path);
    auto record = DecodeRecord(*text);
    if (record.ok()) return record;
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    return MakeError(ErrorCode::kNotFound, "{}: {}", path, record.error().message);
}

Status WriteRecord(const std::string& path, const SelfTestRecord& record) {
    return ReplaceFile(path, EncodeRecord(record));
}

double Distance(std::span<const float> a, std::span<const float> b) {
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    if (a.size() != b.size()) return kInfinite;
    double difference = 0, size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double d = static_cast<double>(a[i]) - b[i];
        difference += d * d;
        size += static_cast<double>(b[i]) * b[i];
    }
    if (difference == 0) return 0;
    const double distance = std::sqrt(difference / size);
    return std::isfinite(distance) ? distance : kInfinite;
}

std::vector<double> OpDistances(const std::vector<OpDigest>& record,
                                const std::vector<OpDigest>& mine) {
    std::map<std::string_view, const OpDigest*> by_name;
    for (const OpDigest& op : mine) by_name.emplace(op.name, &op);
    std::vector<double> distances(record.size(), -1);
    for (size_t i = 0; i < record.size(); ++i) {
        const auto found = by_name.find(record[i].name);
        if (found == by_name.end()) continue;  // of another stage
        const OpDigest& op = *found->second;
        const int64_t skip = op.first_block - record[i].first_block;
        const auto have = static_cast<int64_t>(record[i].blocks.size());
        const auto want = static_cast<int64_t>(op.blocks.size());
        distances[i] = std::numeric_limits<double>::infinity();
        if (skip < 0 || skip + want > have) continue;
        const auto theirs = std::span(record[i].blocks)
                                .subspan(static_cast<size_t>(skip), static_cast<size_t>(want));
        distances[i] = Distance(op.blocks, theirs);
    }
    return distances;
}

int64_t FirstDifference(const std::vector<OpDigest>& record, const std::vector<OpDigest>& mine,
                        double tolerance) {
    const std::vector<double> distances = OpDistances(record, mine);
    const auto first =
        std::ranges::find_if(distances, [&](double distance) { return distance > tolerance; });
    return first == distances.end() ? -1 : first - distances.begin();
}

}  // namespace weft::engine
