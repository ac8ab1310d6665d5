// Finds how a model's chat template expects tool calls and results, and converts conversations to
// that form. Templates differ: arguments as an object or as text; empty or absent content beside
// calls; ids of nine alphanumeric characters; one call per message; text dropped beside calls; no
// support for functions, calls, results or system messages. A template does not declare this, so
// FindCapabilities renders a probe conversation in each form and compares the outputs.
//
// Limits: the caller bounds `messages` (depth and count). Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "chat/answer.h"
#include "chat/chat.h"

namespace weft::chat {

struct TemplateCapabilities {
    bool takes_objects = true;      // accepts call arguments as objects
    bool takes_text = false;        // accepts call arguments as JSON text
    bool null_content = false;      // if a message has only calls, its content is null, not ""
    bool short_ids = false;         // call ids have nine alphanumeric characters (Mistral)
    bool one_call = false;          // one call per message
    bool text_apart = false;        // text beside calls becomes a separate message before them
    bool calls_as_words = false;    // shows no calls: they become assistant text
    bool results_as_words = false;  // shows no results: they become user messages
    // Call ids have the form functions.NAME:0. The template shows the name only in them.
    bool named_ids = false;
    bool ids_begin_anew = false;  // the numbers of named_ids restart at 0 in each message
    bool named_results = false;   // results need the name of the call's function
    // Gemma 4's first template: results are the member tool_responses of the message with the
    // calls, and the answer to them is that message's content (ChatInput::results_in_turn).
    bool tool_responses = false;
    // Where the template reads reasoning: from the members that messages have; beside calls from
    // the text, to which reasoning is joined because the template rejects both; beside calls from
    // "tool_plan" (Cohere); or from a part of the content of type "thinking" (Mistral).
    enum class ThoughtAs { kGiven, kJoined, kToolPlan, kPart } thought_as = ThoughtAs::kGiven;
    bool system_as_user = false;  // no system messages: their text joins a user message
    // The template does not show the system message when results follow: the system text goes into
    // the first user message.
    bool system_lost = false;
    // Shows one system message: those that open the conversation are joined.
    bool one_system = false;
    // No system message after the first user message is shown: its text becomes user text.
    bool late_system_as_user = false;
    // User and assistant must alternate (Gemma 2, Mistral): consecutive messages of one are joined.
    bool alternates = false;
    // A question behind results needs an answer before it (Mistral): "OK." is inserted.
    bool answers_results = false;
    // Functions need a description and parameters: empty ones are added where they are missing.
    bool whole_functions = false;
    // OLMo 3: the template reads functions, calls and results as text, from members of the message
    // that only this family has
    bool function_texts = false;
    // GLM-4: a call is a message of the assistant with the function's name as "metadata" and the
    // arguments as content; results have the role "observation".
    bool metadata_calls = false;
    // How functions are presented: by the template; as text in the system message's member "tools"
    // (Phi-4-mini); or, if the template shows no functions, in plain text.
    enum class ToolsAs { kGiven, kSystemMember, kWords } tools_as = ToolsAs::kGiven;
    // kWords: an example call in the family's own format; empty: <tool_call>.
    std::string call_example{};
    ToolCallFormat words = ToolCallFormat::kQwen;  // format of calls written as text

    bool operator==(const TemplateCapabilities&) const = default;
};

// The form that `chat` accepts in conversations with tools, or (with_tools false) in conversations
// without tools that contain calls from earlier turns. Returns the defaults if no form works.
TemplateCapabilities FindCapabilities(const Chat& chat, bool with_tools);

// Detects the family by the template's source and by what it renders for a conversation with a call
// and reasoning, since a template may compose its markers.
ToolCallFormat FamilyOf(const Chat& chat);

// Format of the calls that the API does not force. A model that gets its tools as plain text uses
// the format shown there; other models use the format of `family`.
ToolCallFormat CallFamily(ToolCallFormat family, const TemplateCapabilities& form);

// Converts messages in OpenAI's form (JSON arguments already parsed) to the form that the template
// accepts, without changing their meaning:
//  - null, absent or empty content beside calls becomes the template's empty value; in other
//    assistant messages it becomes ""; an empty list of calls is removed;
//  - arguments become objects or text; missing arguments become an empty object;
//  - ids that the template rejects are replaced by valid ids. The same id always gets the same new
//    id, so a call and its result keep equal ids. Ids that name the function (Kimi) are built from
//    the function's name;
//  - results are sorted in the order of their calls, and get the name of the call's function and
//    their content as JSON if needed;
//  - a result without a known id gets the name of the first call without a result of its own;
//  - reasoning moves to the member that the template reads;
//  - text beside calls moves to a message before them if the template would drop it. With
//    tool_responses, text beside calls that follow results is left out, because the template cannot
//    show it;
//  - several calls of one message become one message each, before its result, if needed;
//  - calls become assistant text, <tool_call>{...}</tool_call> or the family's format, if the
//    template has no calls; results become user messages, <tool_response>...</tool_response>, if it
//    has no results.
// Linear in the size of the messages.
void FitToolTurns(const TemplateCapabilities& form, OrderedJson& messages);

// FitToolTurns for a whole conversation, including functions (null descriptions, parameters,
// properties and lists of required ones are removed) and system messages.
void FitConversation(const TemplateCapabilities& form, ChatInput& input);

// The nine-character id for `id`; unchanged if it already is one.
std::string ShortCallId(std::string_view id);

}  // namespace weft::chat
