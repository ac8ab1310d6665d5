// Self-test: before the first request, all ranks run one fixed short prompt and compare the
// results.
//
// Values that are replicated on the tensor ranks (sums, norms, residuals, logits) must have the
// same bits on all of them. The logits must also agree with a record: a job of one rank stores its
// result in the cache folder, and later the logits of any layout must equal it within a tolerance.
// A job that fails the test refuses to serve; the error names the first op that differs, and the
// rank.
//
// Cost: one step of kSelfTestTokens rows and one all-gather over the control connections. If stages
// have unlike devices, there are a few more all-gathers. If a result differs, a second step finds
// the op. The KV cache counts as empty afterwards.
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

// The prompt for a vocabulary of `vocab` tokens; always the same.
std::vector<int32_t> SelfTestPrompt(int64_t vocab);

// Digest of one op's result that can be compared between layouts. A layout with sums over ranks has
// additional ops, and other names of values; `name` is the same in all layouts.
struct OpDigest {
    std::string name;       // name of the value, without ".sum" and ".part"
    int32_t op = 0;         // index of the op in this rank's Program
    bool whole = false;     // replicated on all tensor ranks
    uint64_t checksum = 0;  // of the value's bits
    // Each block is the sum over all rows and kDigestColumns columns, with fixed signs. blocks[0]
    // is block `first_block` of the whole value. Only blocks whose columns are all on this rank are
    // included.
    int64_t first_block = 0;
    std::vector<float> blocks;
};
inline constexpr int64_t kDigestColumns = 32;

// An op whose result can be compared between layouts.
struct OpPlace {
    std::string name;
    program::ValueId value = program::kNoValue;
    int64_t first_column = 0;
    bool whole = false;
};
std::vector<std::optional<OpPlace>> PlacesOf(const program::Program& program);
// data: the op's result, [rows, columns]. blocks: also sets OpDigest::blocks.
OpDigest Digest(const OpPlace& place, int32_t op, std::span<const float> data, int64_t rows,
                bool blocks);

// The result of a job with one rank.
struct SelfTestRecord {
    std::vector<OpDigest> ops;  // their checksums are not stored
    std::vector<float> logits;
};
std::string EncodeRecord(const SelfTestRecord& record);
// Errors: kCorrupt: `text` is not a record.
Result<SelfTestRecord> DecodeRecord(std::string_view text);

// CacheFolder()/proof/KEY; "": there is no such folder. Slashes of the key, whose parts may come
// from other ranks, become underscores, so that the path stays in that folder.
std::string RecordPath(std::string key);
// Errors: kNotFound: there is no record, or a corrupt one, which ReadRecord then removes.
Result<SelfTestRecord> ReadRecord(const std::string& path);
// Writes a temporary file and renames it, so a reader never sees a partial record. Creates the
// folder.
Status WriteRecord(const std::string& path, const SelfTestRecord& record);

// |a - b| / |b|; infinite if the sizes differ or a number is NaN.
double Distance(std::span<const float> a, std::span<const float> b);
// For each op of the record: the distance of the op's blocks in `mine`. Infinite if their numbers
// of blocks do not match; -1 for ops of other stages.
std::vector<double> OpDistances(const std::vector<OpDigest>& record,
                                const std::vector<OpDigest>& mine);
// Index of the first op of the record whose distance exceeds the tolerance; -1: none.
int64_t FirstDifference(const std::vector<OpDigest>& record, const std::vector<OpDigest>& mine,
                        double tolerance);

}  // namespace weft::engine
