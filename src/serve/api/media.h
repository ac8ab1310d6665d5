// Images, recordings and files in messages, which a model of text cannot read. Readers of messages
// refuse them, so that nothing is dropped in silence; this replaces them by notes before.
#pragma once

#include <string>
#include <string_view>

#include "serve/api/fields.h"

namespace weft::serve {

// The note for a part of a content, after the part's `text`; "": the part may be text.
std::string NoteOf(const Json& part);

inline constexpr std::string_view kImageNote = "[an image, which this model cannot see]";

// Replaces each of these parts in tool messages by a note, so that an agent whose tool returned an
// image can continue. everywhere: in all messages, and in Ollama's `images` of a prompt.
void NoteMedia(Json& body, bool everywhere);

}  // namespace weft::serve
