/* Calls a signature of an export, in a process that has TensorFlow's own C library and no Python.
 *
 *   translate EXPORT TEXT_OPERATIONS NUM_INPUTS INPUT... OUTPUT... < sentences
 *
 * EXPORT is a version's directory, TEXT_OPERATIONS the library with TF-Text's SentencePiece operations, the rest are
 * the signature's tensors, such as `StatefulPartitionedCall:0`. All lines of standard input go through the graph as one
 * batch, into each input. Standard output has a line for each: the outputs' values, with tabs between; in a text a
 * backslash, a tab and a line's end are written \\, \t and \n.
 */
#define _GNU_SOURCE /* getline */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

enum { MOST = 8 }; /* inputs, or outputs */

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

/* The values that a sentence has in an output of shape (batch) or (batch, n). */
static void print_row(const TF_Tensor* tensor, const char* name, int64_t batch, int64_t row) {
  int rank = TF_NumDims(tensor);
  if (rank < 1 || rank > 2 || TF_Dim(tensor, 0) != batch) fail(name, "not a row for each sentence");
  int64_t width = rank == 2 ? TF_Dim(tensor, 1) : 1;
  const void* data = TF_TensorData(tensor);
  for (int64_t place = row * width; place < (row + 1) * width; ++place) {
    const TF_TString* texts = data;
    if (place > row * width) putchar('\t');
    switch (TF_TensorType(tensor)) {
      case TF_STRING: print_escaped(TF_StringGetDataPointer(&texts[place]), TF_StringGetSize(&texts[place])); break;
      case TF_FLOAT: printf("%.9g", ((const float*)data)[place]); break;
      case TF_INT32: printf("%d", ((const int32_t*)data)[place]); break;
      case TF_BOOL: printf("%d", ((const unsigned char*)data)[place]); break;
      default: fail(name, "not a type that a signature has");
    }
  }
}

int main(int argc, char** argv) {
  int num_inputs = argc > 3 ? atoi(argv[3]) : 0;
  int num_outputs = argc - 4 - num_inputs;
  if (num_inputs < 1 || num_inputs > MOST || num_outputs < 1 || num_outputs > MOST)
    fail("usage", "translate EXPORT TEXT_OPERATIONS NUM_INPUTS INPUT... OUTPUT... < sentences");
  const char* directory = argv[1];
  const char* text_operations = argv[2];
  char** output_names = &argv[4 + num_inputs];
  TF_Status* status = TF_NewStatus();

  TF_Library* library = TF_LoadLibrary(text_operations, status);
  check(status, text_operations);
  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  const char* tags[] = {"serve"};
  TF_Session* session = TF_LoadSessionFromSavedModel(options, NULL, directory, tags, 1, graph, NULL, status);
  check(status, directory);

  TF_Tensor* sentences = read_sentences();
  int64_t batch = TF_Dim(sentences, 0);
  TF_Output inputs[MOST], outputs[MOST];
  TF_Tensor *texts[MOST], *values[MOST] = {NULL};
  for (int index = 0; index < num_inputs; ++index) {
    inputs[index] = find(graph, argv[4 + index]);
    texts[index] = sentences;
  }
  for (int index = 0; index < num_outputs; ++index) outputs[index] = find(graph, output_names[index]);
  TF_SessionRun(session, NULL, inputs, texts, num_inputs, outputs, values, num_outputs, NULL, 0, NULL, status);
  check(status, "the signature");

  for (int64_t row = 0; row < batch; ++row) {
    for (int index = 0; index < num_outputs; ++index) {
      print_row(values[index], output_names[index], batch, row);
      putchar(index + 1 < num_outputs ? '\t' : '\n');
    }
  }

  TF_TString* read = TF_TensorData(sentences);
  for (int64_t row = 0; row < batch; ++row) TF_StringDealloc(&read[row]);
  TF_DeleteTensor(sentences);
  for (int index = 0; index < num_outputs; ++index) TF_DeleteTensor(values[index]);
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  check(status, "end of session");
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
  TF_DeleteLibraryHandle(library);
  TF_DeleteStatus(status);
  return 0;
}
