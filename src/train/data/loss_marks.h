// Marks that say which parts of a record are learned, under the names that trainers use. A member
// that looks like such a mark and has another name is refused by name: to ignore it would learn
// what its author left out.
//
// Errors, without the place: kCorrupt (a mark of another type or length), kUnsupported (a mark that
// is not known).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "chat/chat_template.h"

namespace weft::train {

// Zeros and ones, or false and true, one a token; empty where `key` is absent or null.
Result<std::vector<uint8_t>> TokenFlags(const chat::OrderedJson& record, const char* key,
                                        size_t count);

// Of a record of token ids: 1 where the token is learned, empty where all tokens are. A token is
// learned if every mask of the record says so. A mask stands at the places of its own ids.
Result<std::vector<uint8_t>> LossOfTokens(const chat::OrderedJson& record,
                                          std::span<const int32_t> ids);

// Replaces the marks of each message by chat::kLossMember, 0 or 1.
Status ReadTurnMarks(chat::OrderedJson& messages);

// Refuses a record of text that is marked as a whole: a mask, a record that is not to be learned,
// and (has_answer) a KTO record, whose answer may be a rejected one.
Status CheckRecordMarks(const chat::OrderedJson& record, bool has_answer);

}  // namespace weft::train
