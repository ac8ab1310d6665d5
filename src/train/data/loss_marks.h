// Reads the marks that say which parts of a record are learned, under the names of other trainers.
// A member that looks like a mark but has an unknown name is an error: training would otherwise
// learn parts that the author may have excluded.
//
// Errors, without the place: kCorrupt (a mark of another type or length), kUnsupported (an unknown
// mark).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "chat/chat_template.h"

namespace weft::train {

// Zeros and ones, or false and true, one per token; empty if `key` is absent or null.
Result<std::vector<uint8_t>> TokenFlags(const chat::OrderedJson& record, const char* key,
                                        size_t count);

// The loss mask of a record of token ids: 1 if the token is learned; empty if all are. A token is
// learned if every mask of the record says so. A mask aligns with the record's ids.
Result<std::vector<uint8_t>> LossOfTokens(const chat::OrderedJson& record,
                                          std::span<const int32_t> ids);

// Replaces the marks of each message by chat::kLossMember, 0 or 1.
Status ReadTurnMarks(chat::OrderedJson& messages);

// Rejects a record of text with a mark for the whole record: a mask, a record that is excluded from
// training, and (has_answer) a KTO record, whose answer may be a rejected one.
Status CheckRecordMarks(const chat::OrderedJson& record, bool has_answer);

}  // namespace weft::train
