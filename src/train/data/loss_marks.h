// Reads the marks in a record: members that state which parts are learned, with the names that
// other trainers use. A member that looks like a mark but has an unknown name is an error, because
// training could otherwise learn parts that the author has excluded.
//
// Errors (the messages do not have the record's place): kCorrupt (a mark of the wrong type or
// length), kUnsupported (an unknown mark).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "chat/template/chat_template.h"

namespace weft::train {

// Reads a mask, `count` zeros and ones or false and true, from member `key`; empty if the member is
// absent or null.
Result<std::vector<uint8_t>> TokenFlags(const chat::OrderedJson& record, const char* key,
                                        size_t count);

// The loss mask of a record of token ids: 1 if the token is learned; empty if all are. A token is
// learned if it is 1 in every mask of the record. Masks have one element per id.
Result<std::vector<uint8_t>> LossOfTokens(const chat::OrderedJson& record,
                                          std::span<const int32_t> ids);

// Replaces the marks of each message by chat::kLossMember, 0 or 1.
Status ReadTurnMarks(chat::OrderedJson& messages);

// Rejects a record of text that has a token mask or is excluded from training as a whole. With
// has_answer, also rejects a KTO record, because its answer may be a rejected one.
Status CheckRecordMarks(const chat::OrderedJson& record, bool has_answer);

}  // namespace weft::train
