// What a model's chat template takes of calls of tools and their results, and conversations made to
// fit it. Templates differ: some want a call's arguments as an object, some as text; some want an
// empty content beside calls, some none; some demand ids of nine letters and digits, or one call a
// message; some leave out calls beside a text; some know no functions, calls or results, and
// refuse their turns or drop them; some refuse system messages. None says so, so FindToolForm
// renders a made-up conversation in each form and looks what comes out of it.
//
// Sizes: `messages` as the caller has bounded them (depth and count). Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "chat/answer.h"
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
    bool named_ids = false;  // ids are functions.NAME:0, where nothing else names the function ...
    bool ids_begin_anew = false;  // ... and count within each message, not through all of them
    bool thought_joined = false;  // reasoning and text beside calls are refused: one text, then
    bool system_as_user = false;  // no system messages: the user's first message has what it says
    // The system message isn't shown behind results: then the user's first message has what it
    // says.
    bool system_lost = false;
    // A function without a description or parameters is refused: it gets empty ones, then.
    bool whole_functions = false;
    bool function_texts = false;  // OLMo 3: functions, calls and results under names of their own
    // How the functions are told: by the template, as text in the system message's "tools" (Phi 4
    // mini's), or (it shows none) in words.
    enum class ToolsAs { kGiven, kSystemMember, kWords } tools_as = ToolsAs::kGiven;
    // How a call is written, where kWords tells of the family's own form; empty: <tool_call>.
    std::string call_example{};
    AnswerFamily words = AnswerFamily::kQwen;  // whose form calls have that are told as words

    bool operator==(const ToolForm&) const = default;
};

// The form that `chat` takes in conversations that have tools, or (with_tools: false) have had
// them. The defaults where no form helps.
ToolForm FindToolForm(const Chat& chat, bool with_tools);

// The form that unasked calls have, of a model of `family`: who was told in words how to call
// writes calls so.
AnswerFamily CallFamily(AnswerFamily family, const ToolForm& form);

// Makes messages in OpenAI's form (calls' arguments parsed already, where they are JSON) such as
// the template takes, without a change of what they say:
//  - a content that is null, absent or empty beside calls is the template's empty one, and "" in
//    other messages of the assistant; an empty list of calls is none;
//  - arguments are objects or texts; none at all are an empty object;
//  - ids that the template refuses get one that it takes, the same for the call and its result, and
//    always the same for the same id; where ids name the function (Kimi's), they are made of it;
//  - results come in the order of their calls;
//  - a text beside calls becomes a message before theirs where the template drops such calls;
//  - several calls of one message become one message each, before its result, where only one may
//    be;
//  - where the template knows no calls, they are text of the assistant's message,
//    <tool_call>{...}</tool_call> (or as its family writes them); where it knows no results, they
//    are a message of the user's, <tool_response>...</tool_response>.
// Takes time linear in the size of the messages.
void FitToolTurns(const ToolForm& form, OrderedJson& messages);

// The same for a whole conversation: its functions (a description or parameters that are null are
// left out) and its system message, too.
void FitConversation(const ToolForm& form, ChatInput& input);

// The id for `id` where nine letters and digits are demanded: itself, if it is one.
std::string ShortCallId(std::string_view id);

}  // namespace weft::chat
