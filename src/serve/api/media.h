// Images, recordings and files in messages, which a model of text cannot read. Readers of messages
// refuse them, so that nothing is dropped in silence; this replaces them by notes before.
#pragma once

#include <string>
#include <string_view>

#include "serve/api/fields.h"

namespace weft::serve {

// The note for a part of a content, behind the part's member `text`; "": the part may be text.
std::string NoteOf(const Json& part);

inline constexpr std::string_view kImageNote = "[an image, which this model cannot see]";

// Puts a note in place of each one in a request's tool messages, so that an agent whose tool
// returned an image can go on. everywhere: in all messages, and in Ollama's `images` of a prompt.
void NoteMedia(Json& body, bool everywhere);

}  // namespace weft::serve
