"""In which queue a job is stored: locators, kept beside the queues."""
