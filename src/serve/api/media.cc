#include "serve/api/media.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace weft::serve {
namespace {

constexpr std::string_view kFileNote = "[a file, which this model cannot read]";

// The types of parts in the clients' APIs, and their notes.
struct Medium {
    std::string_view note;
    std::array<std::string_view, 11> types;
};
constexpr Medium kMedia[] = {
    {kImageNote,
     {"image", "image_url", "input_image", "output_image", "image_file", "image_data",
      "image_embeds", "image_pil", "screenshot", "computer_screenshot", "input_screenshot"}},
    {"[a recording, which this model cannot hear]",
     {"audio", "audio_url", "input_audio", "output_audio", "audio_file", "audio_data",
      "audio_embeds"}},
    {"[a video, which this model cannot see]",
     {"video", "video_url", "input_video", "video_file", "video_data", "video_embeds"}},
    {"[a document, which this model cannot read]", {"document", "document_url", "input_document"}},
    {kFileNote, {"file", "input_file", "file_url", "file_data", "upload", "container_upload"}}};

// Ollama's `images`: a note behind the member `text`, a text or a list of parts. Readers refuse
// others. (One note for all: a body of 3 MB has a million empty images.)
void NoteImages(Json& json, const char* text) {
    const auto images = json.find("images");
    if (images == json.end() || !images->is_array() || images->empty()) return;
    Json content = json.value(text, Json());
    if (content.is_null()) content = "";
    if (!content.is_string() && !content.is_array()) return;
    const size_t count = images->size();
    const std::string note = count == 1
                                 ? std::string(kImageNote)
                                 : fmt::format("[{} images, which this model cannot see]", count);
    if (content.is_array()) {
        content.push_back({{"type", "text"}, {"text", note}});
    } else {
        std::string& words = content.get_ref<std::string&>();
        if (!words.empty()) words += '\n';
        words += note;
    }
    json.erase("images");
    json[text] = std::move(content);
}

void NoteMessage(Json& message, bool everywhere) {
    if (!message.is_object()) return;
    const std::string role = Fields(message).Text("role", "");
    if (!everywhere && role != "tool" && role != "function") return;
    NoteImages(message, "content");
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) return;
    for (Json& part : *content) {
        const std::string note = NoteOf(part);
        if (!note.empty()) part = {{"type", "text"}, {"text", note}};
    }
}

}  // namespace

std::string NoteOf(const Json& part) {
    if (!part.is_object()) return "";
    Fields fields(part);
    const std::string type = fields.Text("type", "");
    const std::string source = Fields(fields.Object("source")).Text("type", "");
    if (type == "document" && (source == "text" || source == "content")) return "";
    const auto* const medium = std::ranges::find_if(kMedia, [&](const Medium& each) {
        return !type.empty() && std::ranges::find(each.types, type) != each.types.end();
    });
    const bool blob = Fields(fields.Object("resource")).Has("blob");  // of the protocol MCP
    const bool known = medium != std::end(kMedia);
    if (!known && !blob && source != "base64") return "";
    const std::string words = fields.Text("text", "");
    return fmt::format("{}{}{}", words, words.empty() ? "" : "\n",
                       known ? medium->note : kFileNote);
}

void NoteMedia(Json& body, bool everywhere) {
    if (everywhere) NoteImages(body, "prompt");
    for (const char* name : {"messages", "input"}) {
        const auto list = body.find(name);
        if (list == body.end() || !list->is_array()) continue;
        for (Json& message : *list) NoteMessage(message, everywhere);
    }
}

}  // namespace weft::serve
