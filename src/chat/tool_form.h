// What a model's chat template takes of calls of tools and their results, and conversations made to
// fit it. Templates differ: some want a call's arguments as an object, some as text; some want an
// empty content beside calls, some none; some demand ids of nine letters and digits, or one call a
// message; some leave out calls beside a text; some know no calls, no results or neither, and
// refuse their turns or drop them. None says so, so FindToolForm renders a made-up conversation in
// each form and looks what comes out of it.
//
// Sizes: `messages` as the caller has bounded them (depth and count). Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "chat/chat.h"

namespace weft::chat {

struct ToolForm {
    bool takes_objects = true;    // arguments of calls as objects ...
    bool takes_text = false;      // ... or as texts of JSON
    bool null_content = false;    // a message of calls alone has the content null, not ""
    bool short_ids = false;       // ids of calls have nine letters and digits (Mistral's)
    bool one_call = false;        // one call a message
    bool text_apart = false;      // what is said beside calls has a message of its own before them
    bool calls_as_words = false;  // no calls: they are told in the assistant's text
    bool results_as_words = false;  // no results: they are told in messages of the user's

    bool operator==(const ToolForm&) const = default;
};

// The form that `chat` takes in conversations that have tools, or (with_tools: false) have had
// them. The defaults where no form helps.
ToolForm FindToolForm(const Chat& chat, bool with_tools);

// Makes messages in OpenAI's form (calls' arguments parsed already, where they are JSON) such as
// the template takes, without a change of what they say:
//  - a content that is null, absent or empty beside calls is the template's empty one, and "" in
//    other messages of the assistant; an empty list of calls is none;
//  - arguments are objects or texts; none at all are an empty object;
//  - ids that the template refuses get one that it takes, the same for the call and its result, and
//    always the same for the same id;
//  - a text beside calls becomes a message before theirs where the template drops such calls;
//  - several calls of one message become one message each, before its result, where only one may
//    be;
//  - where the template knows no calls, they are text of the assistant's message,
//    <tool_call>{...}</tool_call>; where it knows no results, they are a message of the user's,
//    <tool_response>...</tool_response>.
// Takes time linear in the size of the messages.
void FitToolTurns(const ToolForm& form, OrderedJson& messages);

// The id for `id` where nine letters and digits are demanded: itself, if it is one.
std::string ShortCallId(std::string_view id);

}  // namespace weft::chat
