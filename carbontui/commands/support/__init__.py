"""What the verbs share: values of a command line, finding and asking a job, printing."""
