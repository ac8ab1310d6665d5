// Reasoning of an answer: whether the template requests it, where it begins and ends, and its
// budget.
#pragma once

#include <cstdint>
#include <string>

#include "engine/sampling/reasoning.h"
#include "serve/api/fields.h"
#include "serve/api/openai/chat.h"
#include "serve/api/served.h"

namespace weft::serve {

// Reads whether and how much the model reasons, under the names of several servers:
//   an effort   reasoning_effort, reasoning.effort, output_config.effort, think as a text;
//   a switch    enable_thinking (enable_reasoning), thinking.type, think, reasoning.enabled;
//   reasoning.exclude, which hides the reasoning;
//   a budget    vLLM's thinking_token_budget with its other names (fields.cc);
//               thinking.budget_tokens and reasoning.max_tokens, which also switch reasoning on.
// Efforts are compared without case, and a word in place of a budget is an effort. Call it after
// ReadTemplateVariables: chat_template_kwargs overrides the switches. Other members of these
// objects go to conversation.left_out, except output_config.format if the conversation has its
// constraint. later: an effort that replaces the request's; may be empty. later_member: its full
// name.
void ReadThinking(Fields& fields, Conversation& conversation, const std::string& later = {},
                  const std::string& later_member = {});

// Replaces the effort of the server's variables by the nearest one that the template accepts, and
// logs it. Call it once per model.
void FitServersEffort(Served& served);

// Sets `enable_thinking` if neither the request's variables nor its switches did: a budget of 0
// turns it off; an effort turns it on or, with "none", off (vLLM's rule). An effort that the
// template rejects becomes the nearest one that it accepts, and left_out names the rejected effort.
// left_out also names a switch and an effort that the template does not obey. Then adds the
// server's variables of the chat template that the request does not set. Templates that name the
// variable `thinking` get it, too.
void FillVariables(const Served& served, Conversation& conversation);

// The reasoning with which an answer to the prompt may begin. constrained: a constraint follows it.
// Empty if there is neither a budget nor a constraint, because the engine then need not follow the
// reasoning.
engine::Reasoning ReasoningOf(const Served& served, const Conversation& conversation,
                              const ChatPrompt& prompt, bool constrained);

}  // namespace weft::serve
