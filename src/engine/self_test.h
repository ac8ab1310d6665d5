// Start-up proof: before the first request, all ranks run one short prompt that is always the same,
// and compare what came of it.
//
// With each other: what is the same on every tensor rank by construction (sums, norms, residuals,
// logits) must have the same bits. With the record: one rank alone leaves what it got in the cache
// folder; later, the logits of any layout must equal those to a tolerance. A cluster that differs
// refuses to serve, and names the first op that differs, and the rank.
//
// Cost: one step of kSelfTestTokens rows and one round of the control plane; a few more rounds
// where stages have unlike devices, and a second step, too, where something differs. The KV cache
// counts as empty afterwards.
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

// The prompt: ids of a vocabulary of that size, every time the same.
std::vector<int32_t> SelfTestPrompt(int64_t vocab);

// What one op left, as far as it can be compared between layouts. A layout with sums over ranks has
// more ops and other names; `name` is the same in all.
struct OpDigest {
    std::string name;       // of the value, without ".sum" and ".part"
    int32_t op = 0;         // in this rank's Program
    bool whole = false;     // the same on all tensor ranks
    uint64_t checksum = 0;  // of its bits
    // Sums over all rows and kDigestColumns columns each, with fixed signs; from block
    // `first_block` of the whole value on. Only blocks that are all on this rank.
    int64_t first_block = 0;
    std::vector<float> blocks;
};
inline constexpr int64_t kDigestColumns = 32;

// Which ops of a Program leave something to compare, and where its columns lie in the whole value.
struct OpPlace {
    std::string name;
    program::ValueId value = program::kNoValue;
    int64_t first_column = 0;
    bool whole = false;
};
std::vector<std::optional<OpPlace>> PlacesOf(const program::Program& program);
// data: [rows, columns]. blocks: fill those in, too.
OpDigest Digest(const OpPlace& place, int32_t op, std::span<const float> data, int64_t rows,
                bool blocks);

// What one rank alone got.
struct SelfTestRecord {
    std::vector<OpDigest> ops;  // without checksums
    std::vector<float> logits;
};
std::string EncodeRecord(const SelfTestRecord& record);
// kCorrupt where the text is no record.
Result<SelfTestRecord> DecodeRecord(std::string_view text);

// $XDG_CACHE_HOME/weft/proof/KEY or ~/.cache/weft/proof/KEY; "": there is no such folder.
std::string RecordPath(const std::string& key);
// kNotFound where there is none (or a broken one, which is removed).
Result<SelfTestRecord> ReadRecord(const std::string& path);
// By a rename, so that a reader never sees half of one. Creates the folder.
Status WriteRecord(const std::string& path, const SelfTestRecord& record);

// |a - b| / |b|; infinite where the sizes differ or a number is none.
double Distance(std::span<const float> a, std::span<const float> b);
// Of each op of the record: the distance of `mine`; infinite where its blocks are others; -1 where
// it is of another stage.
std::vector<double> OpDistances(const std::vector<OpDigest>& record,
                                const std::vector<OpDigest>& mine);
// The first op of the record of which `mine` differs by more than the tolerance; -1: none.
int64_t FirstDifference(const std::vector<OpDigest>& record, const std::vector<OpDigest>& mine,
                        double tolerance);

}  // namespace weft::engine
