// Files that a conversation at a terminal reads and writes. Errors are for the user.
#pragma once

#include <string>

#include "base/result.h"
#include "chat/template/chat_template.h"

namespace weft::cli {

// Writes {"format": "weft-conversation", "version": 1, "messages": [...]} with mode 0600. An
// existing file is replaced only if it is a conversation.
Status SaveConversation(const std::string& path, const chat::OrderedJson& messages);
// Reads such a file, or another JSON object with `messages`, or a list of messages. The messages
// have a role (system first, then user and assistant) and a text.
Result<chat::OrderedJson> LoadConversation(const std::string& path);

// A text file in a message: its name, and the text in a fence. Also an error: the file is not UTF-8
// text.
Result<std::string> QuoteFile(const std::string& path);

}  // namespace weft::cli
