#include "train/data/packed_ids.h"

#include <algorithm>
#include <utility>

#include "model_files/hf/json.h"

namespace weft::train {
namespace {

using chat::OrderedJson;

constexpr const char* kLengths[] = {"seq_lengths", "seq_lens"};
constexpr const char* kPositions[] = {"position_ids", "input_pos"};
// Members of other trainers' packed data: Megatron and FlashAttention, NeMo, T5X and MaxText.
constexpr const char* kOtherMembers[] = {"cu_seqlens",          "cu_seq_lens_q",  "seq_start_id",
                                         "seq_boundaries",      "sequence_ids",   "segment_ids",
                                         "inputs_segmentation", "inputs_position"};

const OrderedJson* Find(const OrderedJson& record, const char* key) {
    const auto found = record.find(key);
    return found == record.end() || found->is_null() ? nullptr : &*found;
}

std::string ShownValue(const OrderedJson& value) {
    return model_files::hf::Shown(value.dump(-1, ' ', true, OrderedJson::error_handler_t::replace));
}

Status AddLengths(const char* key, const OrderedJson& lengths, std::vector<uint8_t>& starts) {
    const auto wrong = [&] {
        return MakeError(ErrorCode::kCorrupt,
                         "'{}' is {}; expected the lengths of the record's samples, {} in all", key,
                         ShownValue(lengths), starts.size());
    };
    if (!lengths.is_array()) return wrong();
    size_t at = 0;
    for (const OrderedJson& length : lengths) {
        if (!length.is_number_unsigned()) return wrong();
        const auto size = length.get<uint64_t>();
        if (size > starts.size() - at) return wrong();
        if (size > 0) starts[at] = 1;
        at += size;
    }
    if (at != starts.size()) return wrong();
    return {};
}

Status AddPositions(const char* key, const OrderedJson& positions, std::span<const uint8_t> seen,
                    std::vector<uint8_t>& starts) {
    if (!positions.is_array() || positions.size() != starts.size()) {
        return MakeError(ErrorCode::kCorrupt, "'{}' is not a list of {} numbers, one per token",
                         key, starts.size());
    }
    uint64_t next = 0;
    for (size_t i = 0; i < starts.size(); ++i) {
        if (!seen.empty() && seen[i] == 0) continue;
        const OrderedJson& position = positions[i];
        const bool restarts = position.is_number_unsigned() && position == 0;
        if (!restarts && !(next > 0 && position.is_number_unsigned() && position == next)) {
            return MakeError(ErrorCode::kCorrupt,
                             "'{}'[{}] is {}; expected {}: the positions of each sample count up "
                             "from 0. Remove '{}' if the record is one sample, or give one record "
                             "per sample",
                             key, i, ShownValue(position),
                             next == 0 ? "0" : fmt::format("{} or 0", next), key);
        }
        if (restarts) starts[i] = 1;
        next = restarts ? 1 : next + 1;
    }
    return {};
}

}  // namespace

Result<std::vector<uint8_t>> SampleStarts(const OrderedJson& record, size_t count,
                                          std::span<const uint8_t> seen) {
    std::vector<uint8_t> starts(count, 0);
    for (const char* key : kLengths) {
        const OrderedJson* value = Find(record, key);
        if (value != nullptr) WEFT_TRY(AddLengths(key, *value, starts));
    }
    for (const char* key : kPositions) {
        const OrderedJson* value = Find(record, key);
        if (value != nullptr) WEFT_TRY(AddPositions(key, *value, seen, starts));
    }
    for (const char* key : kOtherMembers) {
        const OrderedJson* value = Find(record, key);
        if (value == nullptr || !value->is_array()) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "'{}' packs several samples in a record; expected 'seq_lengths' or "
                         "'position_ids'. Write one of these instead, or give one record per "
                         "sample",
                         key);
    }
    const bool several = std::ranges::count(starts, 1) > 1;
    return several ? std::move(starts) : std::vector<uint8_t>();
}

std::vector<Sample> SplitPacked(Sample packed) {
    std::vector<Sample> samples;
    if (packed.starts.empty()) {
        samples.push_back(std::move(packed));
        return samples;
    }
    for (size_t i = 0; i < packed.tokens.size(); ++i) {
        if (samples.empty() || packed.starts[i] != 0) samples.emplace_back();
        samples.back().tokens.push_back(packed.tokens[i]);
        samples.back().loss.push_back(packed.loss[i]);
    }
    return samples;
}

}  // namespace weft::train
