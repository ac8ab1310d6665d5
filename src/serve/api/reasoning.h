// Reasoning of an answer: whether the template asks for it, where it begins and ends, and its
// budget.
#pragma once

#include <cstdint>

#include "engine/sampling/reasoning.h"
#include "serve/api/fields.h"
#include "serve/api/openai/chat.h"
#include "serve/api/served.h"

namespace weft::serve {

// Reads the most tokens of reasoning: vLLM's thinking_token_budget, or llama-server's
// thinking_budget_tokens and reasoning_budget_tokens. -1: no limit; absent: nullopt.
std::optional<int64_t> ReadReasoningBudget(Fields& fields);

// Adds the server's variables of the chat template that the request does not set. A budget of 0
// turns `enable_thinking` off. Templates that name this variable `thinking` get it, too.
void FillVariables(const Served& served, Conversation& conversation);

// The reasoning with which an answer to the prompt may begin. constrained: a constraint follows it.
// Empty if there is neither a budget nor a constraint, because the engine then need not follow the
// reasoning.
engine::Reasoning ReasoningOf(const Served& served, const Conversation& conversation,
                              const ChatPrompt& prompt, bool constrained);

}  // namespace weft::serve
