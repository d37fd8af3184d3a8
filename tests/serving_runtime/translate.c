/* Translates sentences with an export, in a process that has TensorFlow's own C library and no Python.
 *
 *   translate EXPORT TEXT_OPERATIONS INPUT TRANSLATION SCORE TRUNCATED < sentences
 *
 * EXPORT is a version's directory, TEXT_OPERATIONS the library with TF-Text's SentencePiece operations, the rest are
 * the tensors of `serving_default`, such as `StatefulPartitionedCall:0`. All lines of standard input go through the
 * graph as one batch. Standard output has a line for each: translation, score, truncated (0 or 1), with tabs between;
 * in the translation a backslash, a tab and a line's end are written \\, \t and \n.
 */
#define _GNU_SOURCE /* getline */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

enum { TRANSLATION, SCORE, TRUNCATED, NUM_OUTPUTS };

static void fail(const char* what, const char* why) {
  fprintf(stderr, "translate: %s: %s\n", what, why);
  exit(1);
}

static void check(const TF_Status* status, const char* what) {
  if (TF_GetCode(status) != TF_OK) fail(what, TF_Message(status));
}

/* Standard input's lines, without their ends, as a string tensor of shape (batch). */
static TF_Tensor* read_sentences(void) {
  TF_TString* sentences = NULL;
  int64_t batch = 0;
  char* line = NULL;
  size_t capacity = 0;
  ssize_t length;
  while ((length = getline(&line, &capacity, stdin)) != -1) {
    if (length > 0 && line[length - 1] == '\n') --length;
    sentences = realloc(sentences, (batch + 1) * sizeof(TF_TString));
    if (sentences == NULL) fail("standard input", "out of memory");
    TF_StringInit(&sentences[batch]);
    TF_StringCopy(&sentences[batch], line, length);
    ++batch;
  }
  free(line);
  TF_Tensor* tensor = TF_AllocateTensor(TF_STRING, &batch, 1, batch * sizeof(TF_TString));
  /* A TF_TString may move: what is not inside it is behind a pointer of its own. */
  if (batch > 0) memcpy(TF_TensorData(tensor), sentences, batch * sizeof(TF_TString));
  free(sentences);
  return tensor;
}

/* The tensor `name`, an operation's name and the number of its output, for example `Identity:0`. */
static TF_Output find(TF_Graph* graph, const char* name) {
  const char* colon = strrchr(name, ':');
  if (colon == NULL) fail(name, "a tensor's name ends in a colon and a number");
  char* operation = strndup(name, colon - name);
  TF_Output output = {TF_GraphOperationByName(graph, operation), atoi(colon + 1)};
  if (output.oper == NULL) fail(name, "the graph has no such operation");
  free(operation);
  return output;
}

static void check_output(const TF_Tensor* tensor, const char* name, TF_DataType dtype, int64_t batch) {
  if (TF_TensorType(tensor) != dtype || TF_NumDims(tensor) != 1 || TF_Dim(tensor, 0) != batch)
    fail(name, "not the expected type, or not one value a sentence");
}

static void print_escaped(const char* text, size_t size) {
  for (size_t index = 0; index < size; ++index) {
    switch (text[index]) {
      case '\\': fputs("\\\\", stdout); break;
      case '\t': fputs("\\t", stdout); break;
      case '\n': fputs("\\n", stdout); break;
      default: putchar(text[index]);
    }
  }
}

int main(int argc, char** argv) {
  if (argc != 7) fail("usage", "translate EXPORT TEXT_OPERATIONS INPUT TRANSLATION SCORE TRUNCATED < sentences");
  const char* directory = argv[1];
  const char* text_operations = argv[2];
  char** output_names = &argv[4];
  TF_Status* status = TF_NewStatus();

  TF_Library* library = TF_LoadLibrary(text_operations, status);
  check(status, text_operations);
  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  const char* tags[] = {"serve"};
  TF_Session* session = TF_LoadSessionFromSavedModel(options, NULL, directory, tags, 1, graph, NULL, status);
  check(status, directory);

  TF_Output input = find(graph, argv[3]);
  TF_Output outputs[NUM_OUTPUTS];
  for (int index = 0; index < NUM_OUTPUTS; ++index) outputs[index] = find(graph, output_names[index]);
  TF_Tensor* sentences = read_sentences();
  int64_t batch = TF_Dim(sentences, 0);
  TF_Tensor* values[NUM_OUTPUTS] = {NULL};
  TF_SessionRun(session, NULL, &input, &sentences, 1, outputs, values, NUM_OUTPUTS, NULL, 0, NULL, status);
  check(status, "serving_default");

  check_output(values[TRANSLATION], output_names[TRANSLATION], TF_STRING, batch);
  check_output(values[SCORE], output_names[SCORE], TF_FLOAT, batch);
  check_output(values[TRUNCATED], output_names[TRUNCATED], TF_BOOL, batch);
  const TF_TString* translations = TF_TensorData(values[TRANSLATION]);
  const float* scores = TF_TensorData(values[SCORE]);
  const unsigned char* truncated = TF_TensorData(values[TRUNCATED]);
  for (int64_t row = 0; row < batch; ++row) {
    print_escaped(TF_StringGetDataPointer(&translations[row]), TF_StringGetSize(&translations[row]));
    printf("\t%.9g\t%d\n", scores[row], truncated[row]);
  }

  TF_TString* read = TF_TensorData(sentences);
  for (int64_t row = 0; row < batch; ++row) TF_StringDealloc(&read[row]);
  TF_DeleteTensor(sentences);
  for (int index = 0; index < NUM_OUTPUTS; ++index) TF_DeleteTensor(values[index]);
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  check(status, "end of session");
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
  TF_DeleteLibraryHandle(library);
  TF_DeleteStatus(status);
  return 0;
}
