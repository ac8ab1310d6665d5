// Self-test: before the first request, all ranks run one fixed short prompt and compare the
// results.
//
// Between ranks: values that are replicated on the tensor ranks (sums, norms, residuals, logits)
// must have the same bits. Against the record: a job of one rank stores its result in the cache
// folder; later, the logits of any layout must equal it within a tolerance. A cluster that differs
// refuses to serve, and names the first differing op and the rank.
//
// Cost: one step of kSelfTestTokens rows and one round of the control plane. Stages with unlike
// devices need a few more rounds; a difference needs a second step, too. The KV cache counts as
// empty afterwards.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "program/program.h"

namespace weft::engine {

inline constexpr int64_t kSelfTestTokens = 8;

// The prompt for a vocabulary of that size; always the same.
std::vector<int32_t> SelfTestPrompt(int64_t vocab);

// Digest of one op's result that can be compared between layouts. Layouts with sums over ranks have
// additional ops, and values with other names; `name` is the same in all layouts.
struct OpDigest {
    std::string name;       // name of the value, without ".sum" and ".part"
    int32_t op = 0;         // in this rank's Program
    bool whole = false;     // replicated on all tensor ranks
    uint64_t checksum = 0;  // of its bits
    // Each block is a sum over all rows and kDigestColumns columns, with fixed signs. blocks[0] is
    // block `first_block` of the whole value. Has only blocks that are entirely on this rank.
    int64_t first_block = 0;
    std::vector<float> blocks;
};
inline constexpr int64_t kDigestColumns = 32;

// An op with a comparable result, and the place of its columns in the whole value.
struct OpPlace {
    std::string name;
    program::ValueId value = program::kNoValue;
    int64_t first_column = 0;
    bool whole = false;
};
std::vector<std::optional<OpPlace>> PlacesOf(const program::Program& program);
// data: [rows, columns]. blocks: also fill in OpDigest::blocks.
OpDigest Digest(const OpPlace& place, int32_t op, std::span<const float> data, int64_t rows,
                bool blocks);

// The result of one rank alone.
struct SelfTestRecord {
    std::vector<OpDigest> ops;  // without checksums
    std::vector<float> logits;
};
std::string EncodeRecord(const SelfTestRecord& record);
// kCorrupt: the text is not a record.
Result<SelfTestRecord> DecodeRecord(std::string_view text);

// $XDG_CACHE_HOME/weft/proof/KEY or ~/.cache/weft/proof/KEY; "": there is no such folder.
std::string RecordPath(const std::string& key);
// kNotFound: no record, or a corrupt one, which ReadRecord removes.
Result<SelfTestRecord> ReadRecord(const std::string& path);
// Renames a complete file, so a reader never sees a partial record. Creates the folder.
Status WriteRecord(const std::string& path, const SelfTestRecord& record);

// |a - b| / |b|; infinite if the sizes differ or a number is NaN.
double Distance(std::span<const float> a, std::span<const float> b);
// Distance of `mine` for each op of the record; infinite if the blocks do not match; -1 for ops of
// other stages.
std::vector<double> OpDistances(const std::vector<OpDigest>& record,
                                const std::vector<OpDigest>& mine);
// The first op of the record from which `mine` differs by more than the tolerance; -1: none.
int64_t FirstDifference(const std::vector<OpDigest>& record, const std::vector<OpDigest>& mine,
                        double tolerance);

}  // namespace weft::engine
